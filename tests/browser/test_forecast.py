"""A table is dropped, and each of its series is drawn with its forecast and the interval around it; graphs as well."""

import base64

import numpy as np
import pytest
from playwright.sync_api import expect

import regard
from regard.data.generated.graphs import distance
from regard.data.sets import labelled_graphs
from regard.recipes import fit
from tests.browser.test_transcribe import DROP
from tests.serve.running import serving_here

STEPS = 6


@pytest.fixture(scope="module")
def table():
    """Two series of days, of which one has a gap."""
    rng = np.random.default_rng(0)
    days = np.arange(np.datetime64("2026-01-01"), np.datetime64("2026-05-01"))
    waves = np.sin(np.arange(len(days)) * 2 * np.pi / 7)
    rows = [
        f"{day},{40 + 9 * wave + noise:.2f},{'' if place == 100 else 3000 - 200 * wave:.6}"
        for place, (day, wave, noise) in enumerate(zip(days, waves, rng.normal(size=len(days)), strict=True))
    ]
    return "\n".join(["date,shop,<b>web</b>", *rows])


@pytest.fixture(scope="module")
def address(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("page")
    (folder / "sales.csv").write_text(table)
    small = {"data.horizon": STEPS, "model.dim": 16, "model.depth": 1, "model.patch": 7, "train.steps": 3}
    fit("forecast", out=folder / "sales", quiet=True, **small | {"data.series": str(folder / "sales.csv")})
    graphs = distance(np.random.default_rng(0), 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled_graphs, "embedded_graphs", lambda kind, part: graphs)
        sizes = {"data.kind": "distance", "model.dim": 16, "model.depth": 1, "train.steps": 1}
        fit("graph", out=folder / "graphs", quiet=True, **sizes)
    with serving_here({name: str(folder / name) for name in ("sales", "graphs")}, preload=True) as running:
        running.folder = folder
        yield running


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_table_is_dropped_and_its_forecasts_are_drawn(visit, address, table, theme, tmp_path):
    page = visit("#/forecast?model=sales", address=address.address, color_scheme=theme)
    page.locator("[name=series]").wait_for()
    drop = DROP.replace("talk.wav", "sales.csv").replace("audio/wav", "application/vnd.ms-excel")  # as Windows calls it
    page.evaluate(drop, [".drop", base64.b64encode(table.encode()).decode()])
    charts = page.locator("svg.forecast")
    expect(charts).to_have_count(2)
    wanted = regard.load(address.folder / "sales").forecast(address.folder / "sales.csv")
    assert (
        page.locator("figcaption").all_text_contents()[1].startswith("<b>web</b>: a thin line")
    )  # no HTML of a file's
    assert charts.nth(0).locator(".band").count() == 4  # nine quantiles: four intervals around the median
    assert charts.nth(1).locator(".past").get_attribute("d").count("M") == 2  # the gap is no line
    page.locator("summary", has_text="Figures").nth(0).click()
    rows = page.get_by_role("table", name="shop").locator("tbody tr")
    expect(rows).to_have_count(STEPS)
    assert rows.nth(0).locator("th").text_content() == wanted[0].dates[0]
    shown = float(rows.nth(0).locator("td").nth(0).text_content().replace(",", ""))
    assert shown == pytest.approx(wanted[0].mean[0], rel=1e-4)
    middle = charts.nth(0).evaluate("svg => getComputedStyle(svg.querySelector('.past')).stroke")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = [sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) for colour in (middle, paper)]
    assert (light[0] < light[1]) == (theme == "light")
    page.screenshot(path=tmp_path / f"{theme}.png", full_page=True)


def test_settings_and_the_call_to_copy(visit, address, table):
    page = visit("#/forecast?model=sales", address=address.address)
    page.locator("summary", has_text="Settings").click()
    page.get_by_label("Steps").fill("2")
    page.get_by_label("From").fill("2026-04-20")
    upload = {"name": "sales.csv", "mimeType": "text/csv", "buffer": table.encode()}
    page.locator("[name=series]").set_input_files(upload)
    rows = page.get_by_role("table", name="shop", include_hidden=True).locator("tbody tr")
    expect(rows).to_have_count(2)
    assert "2026-04-20" in rows.nth(0).locator("th").text_content()
    page.locator("summary", has_text="Copy as").click()
    page.get_by_role("tab", name="Python").click()
    assert '"horizon": 2' in page.get_by_role("tabpanel", name="The call").text_content()


def test_a_mistake_in_a_table_is_said_with_its_line(visit, address):
    page = visit("#/forecast?model=sales", address=address.address)
    wrong = b"date,shop,<b>web</b>\n2026-01-01,1,2\n2026-01-02,many,3\n"
    page.locator("[name=series]").set_input_files({"name": "x.csv", "mimeType": "text/csv", "buffer": wrong})
    expect(page.locator("[role=alert]").first).to_contain_text("line 3: 'many' in 'shop' is no number")
    visit.watched[-1].errors.clear()  # the browser notes each refusal


def test_a_graph_is_predicted_and_drawn_beside_it(visit, address):
    page = visit("#/predict?model=graphs", address=address.address)
    nodes = ", ".join(f'{{"marked": "{"yes" if i in (0, 3) else "no"}"}}' for i in range(4))
    graph = f'{{"nodes": [{nodes}], "edges": [[0, 1], [1, 2], [2, 3]]}}'
    upload = {"name": "path.json", "mimeType": "application/json", "buffer": graph.encode()}
    page.locator("[name=graph]").set_input_files(upload)
    expect(page.locator(".phrases li")).to_contain_text("distance ")
    expect(page.locator("svg[aria-label='The graph'] circle")).to_have_count(4)
    page.locator("summary", has_text="Copy as").click()
    page.get_by_role("tab", name="Python").click()
    assert "/v1/predict" in page.get_by_role("tabpanel", name="The call").text_content()
