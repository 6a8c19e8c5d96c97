// Runs before the first paint (it is no module, so it is not deferred): a chosen theme never flashes the other one.
try {
  const theme = JSON.parse(localStorage.getItem("regard.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage, or not ours: the system's theme it is.
}
