// The table of entries: all of it is data, and only what is looked at becomes part of the page.
(() => {
  const data = JSON.parse(document.getElementById("entries-data").textContent);
  const table = document.getElementById("entries"), body = table.tBodies[0];
  const search = document.getElementById("search"), count = document.getElementById("count");
  const more = document.getElementById("more");
  const STEP = 200;
  let shown = 100, rows = data, by = -1, down = false;
  const text = (value) => value === null ? "" : String(value);
  function draw() {
    body.replaceChildren(...rows.slice(0, shown).map((row) => {
      const line = document.createElement("tr");
      for (const value of row) line.insertCell().textContent = text(value);
      return line;
    }));
    count.textContent = `${Math.min(shown, rows.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
    more.hidden = shown >= rows.length;
  }
  function choose() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = data.filter((row) => words.every((word) => row[0].toLowerCase().includes(word)));
    if (by >= 0) {
      const sign = down ? -1 : 1;
      rows.sort((a, b) => {
        const [x, y] = [a[by], b[by]];
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (by === 0 ? x.localeCompare(y, "en", { numeric: true }) : x - y);
      });
    }
    shown = 100;
    draw();
  }
  table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    down = by === column ? !down : column > 0;
    by = column;
    table.querySelectorAll("th").forEach((head, place) => place === by
      ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    choose();
  }));
  search.addEventListener("input", choose);
  more.addEventListener("click", () => { shown += STEP; draw(); });
  document.querySelector(".tools").hidden = false;
  draw();
})();
