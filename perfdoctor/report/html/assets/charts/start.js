// Every figure of the page is drawn from the page's own data. One that cannot be has its caption and table still.

const DRAW = {
  steps: drawSteps, distributions: drawDistributions, ranks: drawRanks, lanes: drawLanes, flame: drawFlame, pairs: drawPairs,
};
const page = JSON.parse(document.getElementById("data").textContent);
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const name = figure.dataset.chart;
  if (DRAW[name] && page.charts[name]) DRAW[name](figure, page.charts[name]);
}
