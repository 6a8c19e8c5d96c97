"""Molecules as graphs, read from SMILES by RDKit: atoms are nodes, bonds are edges."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from regard.config import one_line
from regard.data.readers.graph_files import Graph

NEEDS = "molecules are read by RDKit, which is not installed: pip install 'regard[graph]'"
LONGEST = 5000
"""Characters of the longest SMILES that is read."""


def chemistry() -> Any:
    """RDKit's module of molecules, quiet about what it cannot parse."""
    try:
        from rdkit import Chem, RDLogger
    except ImportError:
        raise ValueError(NEEDS) from None
    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]
    return Chem


def parse(smiles: str, where: str) -> Any:
    """RDKit's molecule of a SMILES; an error for what is none."""
    Chem = chemistry()  # noqa: N806
    if len(smiles) > LONGEST:
        raise ValueError(f"{where}: a SMILES of {len(smiles):,} characters; at most {LONGEST:,} are read")
    mol = Chem.MolFromSmiles(smiles)
    if mol is None or not mol.GetNumAtoms():
        raise ValueError(f"{where}: {one_line(smiles, 60)!r} is no molecule that RDKit can read; correct the SMILES")
    return mol


def molecule(smiles: str, where: str = "molecule", **fields: Any) -> Graph:
    """The graph of a molecule: element, charge, hydrogens and aromaticity of atoms, and the kinds of bonds."""
    return graph_of(parse(smiles, where), title=smiles, **fields)


def graph_of(mol: Any, **fields: Any) -> Graph:
    """The graph of a molecule of RDKit's."""
    atoms, bonds = list(mol.GetAtoms()), list(mol.GetBonds())
    nodes = {
        "element": [atom.GetSymbol() for atom in atoms],
        "charge": [str(atom.GetFormalCharge()) for atom in atoms],
        "hydrogens": [str(atom.GetTotalNumHs()) for atom in atoms],
        "aromatic": ["yes" if atom.GetIsAromatic() else "no" for atom in atoms],
    }
    edges = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds], dtype=np.int64)
    kinds = {"bond": [str(bond.GetBondType()).lower() for bond in bonds]}
    names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in atoms]
    return Graph(
        len(atoms), edges.reshape(-1, 2), as_texts(nodes), as_texts(kinds), names=tuple(names), **fields
    )  # fmt: skip


def as_texts(columns: dict[str, list[str]]) -> dict[str, np.ndarray]:
    """Columns of texts as arrays."""
    return {name: np.array(values, dtype=object) for name, values in columns.items()}


def lines_of(text: str) -> Iterator[tuple[int, str, str]]:
    """The number, the SMILES and the name of each line of a .smi file; a header and comments are passed over."""
    for number, line in enumerate(text.splitlines(), 1):
        smiles, _, name = line.strip().partition(" " if "\t" not in line else "\t")
        if smiles and not smiles.startswith("#") and not (number == 1 and smiles.lower() == "smiles"):
            yield number, smiles, name.strip()


def molecules(text: str, where: str) -> list[Graph]:
    """The molecules of a .smi file, a SMILES a line with its name behind it."""
    graphs = [molecule(smiles, f"{where}, line {number}") for number, smiles, _ in lines_of(text)]
    if not graphs:
        raise ValueError(f"{where}: no molecules; write a SMILES a line")
    return graphs
