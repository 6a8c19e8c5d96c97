/** The frame of a page that stands in a file of its own: its data, its parts by id, and the choice of a theme. */

export const at = (id) => document.getElementById(id);
export const kept = JSON.parse(at("kept").textContent);

for (const radio of at("theme").querySelectorAll("input")) {
  radio.addEventListener("change", () => {
    if (radio.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = radio.value;
  });
}
