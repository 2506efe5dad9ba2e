"use strict";
(() => {
  const root = document.documentElement;
  const said = document.getElementById("said");
  root.classList.add("scripted");

  // Light or dark: as the system says, or as #theme=dark does, until the button is pressed.
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
    root.dispatchEvent(new CustomEvent("themechange"));
  };
  const asked = /[#&]theme=(dark|light)/.exec(location.hash);
  if (asked) root.dataset.theme = asked[1];
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();

  // A page opened from disk may have no clipboard; then the old command, and at last a selection to copy by hand.
  const select = (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  };
  const copied = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent);
      return true;
    } catch {
      select(element);
      try {
        return document.execCommand("copy");
      } catch {
        return false;
      }
    }
  };
  for (const copy of document.querySelectorAll(".copy")) {
    copy.addEventListener("click", async () => {
      const done = await copied(copy.parentElement.querySelector("code"));
      copy.textContent = done ? "Copied" : "Selected";
      said.textContent = done ? "Copied" : "Selected: copy it with Ctrl+C";
      setTimeout(() => { copy.textContent = "Copy"; said.textContent = ""; }, 2000);
    });
  }

  // On paper nothing can be unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });
})();
