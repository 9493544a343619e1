// Draws the attention map that the reader chooses. Without this script the page shows some of them.
"use strict";
{
  const data = JSON.parse(document.getElementById("attention-data").textContent);
  const form = document.getElementById("chooser");
  const place = document.getElementById("chosen");
  const { sentence, site, layer, head } = form.elements;

  function make(name, parent, text = "") {
    const node = document.createElement(name);
    node.textContent = text; // never markup: tokens are data
    parent.append(node);
    return node;
  }

  /** Offers so many numbers, and keeps the one that is chosen where it still exists. */
  function offer(select, count) {
    const before = Number(select.value);
    select.replaceChildren();
    for (let i = 0; i < count; i++) make("option", select, String(i));
    select.value = String(Math.min(before, count - 1));
  }

  function draw() {
    const example = data.examples[Number(sentence.value)];
    const layers = example.weights[site.value];
    offer(layer, layers.length);
    const heads = layers[Number(layer.value)];
    offer(head, heads.length);
    const [rows, columns] = example.labels[site.value];
    const title = `${data.sites[site.value]}, layer ${layer.value}, head ${head.value}`;
    place.replaceChildren(drawTable(title, heads[Number(head.value)], rows, columns));
    place.setAttribute("aria-label", title);
  }

  function drawTable(title, weights, rows, columns) {
    const table = document.createElement("table");
    table.className = "attention";
    make("caption", table, title);
    const top = make("tr", make("thead", table));
    make("td", top);
    for (const column of columns) {
      const heading = make("th", top);
      heading.scope = "col";
      make("span", heading, column);
    }
    const body = make("tbody", table);
    weights.forEach((row, t) => {
      const line = make("tr", body);
      make("th", line, rows[t]).scope = "row";
      row.forEach((weight, s) => {
        const cell = make("td", line, weight < 5 ? "" : String(Math.round(weight / 10)));
        cell.className = `s${Math.round(weight / 10)}`;
        cell.title = `${rows[t]} → ${columns[s]}: ${(weight / 1000).toFixed(3)}`;
      });
    });
    return table;
  }

  form.addEventListener("change", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  place.hidden = false;
  draw();
}
