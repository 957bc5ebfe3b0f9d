// Sets the theme that was chosen before anything is drawn, so that no page flashes in the other one.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
