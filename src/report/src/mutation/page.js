"use strict";
// Without this script every mutant is shown.
const boxes = [...document.querySelectorAll(".controls input")];
const show = () => {
  document.body.classList.add("filtered");
  for (const box of boxes) document.body.classList.toggle("show-" + box.value, box.checked);
};
for (const box of boxes) box.addEventListener("change", show);
show();
const open = (mutant) => {
  mutant.closest(".file").open = true;
  mutant.open = true;
  const summary = mutant.querySelector("summary");
  summary.focus({ preventScroll: true });
  mutant.scrollIntoView({ block: "center" });
};
const openTarget = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.classList.contains("mutant")) open(target);
  else if (target && target.classList.contains("file")) target.open = true;
};
addEventListener("hashchange", openTarget);
openTarget();
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const step = { n: 1, p: -1 }[event.key];
  if (!step) return;
  const shown = [...document.querySelectorAll(".mutant")].filter((one) => getComputedStyle(one).display !== "none");
  if (shown.length === 0) return;
  const current = document.activeElement && document.activeElement.closest(".mutant");
  const next = current ? shown.indexOf(current) + step : step > 0 ? 0 : shown.length - 1;
  open(shown[(next + shown.length) % shown.length]);
});
