"use strict";

// Charts: each element of class "chart" names the script that holds its Vega-Lite specification.
for (const place of document.querySelectorAll(".chart")) {
  const specification = JSON.parse(document.getElementById(place.dataset.chart).textContent);
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(place, specification, { actions, renderer: "canvas" })
    .then(() => place.setAttribute("data-drawn", "true"))
    .catch((error) => console.error(error));
}

// Tables: a click on a head sorts by its column, a second one the other way around; a field above filters the rows.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const sign = descending ? -1 : 1;
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
  const filter = document.querySelector(`input[data-table="${table.id}"]`);
  filter?.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
