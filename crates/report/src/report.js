/* Values under the pointer, and zoom, for plots over time. Pages are readable without it. */
const STEPS = {
  "s": [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
  "bytes": [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]],
  "bit/s": [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]],
  "%": [[0.01, "%"]],
};
const written = (value, unit) => {
  const steps = STEPS[unit] || [[1, unit]];
  const [size, name] = steps.find(([size]) => Math.abs(value) >= size) || steps[steps.length - 1];
  return `${Number((value / size).toPrecision(value < 1 ? 3 : 4))} ${name}`.trim();
};
const tip = document.body.appendChild(document.createElement("pre"));
tip.className = "tip";
tip.hidden = true;

const pictures = document.querySelectorAll("svg[data-plots]");
if (pictures.length > 0) {
  const help = document.createElement("p");
  help.className = "facts";
  help.textContent = "In plots over time: values under the pointer; drag with the mouse to zoom, double-click to show all.";
  document.querySelector("nav")?.after(help);
}
for (const svg of pictures) {
  const plots = JSON.parse(svg.dataset.plots);
  const whole = svg.getAttribute("viewBox");
  /* Shapes are children of the picture in drawing order. */
  const shapes = [...svg.children];
  for (const plot of plots) {
    plot.curves = plot.curves.map(([name, from, to]) => {
      const lines = shapes.slice(from, to).filter((shape) => shape.matches(".line"));
      const numbers = (line) => line.getAttribute("d").match(/-?[\d.]+/g).map(Number);
      return { name, lines: lines.map(numbers) };
    }).filter((curve) => curve.lines.length > 0);
  }
  const overlay = (name) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    element.setAttribute("class", "overlay");
    return svg.appendChild(element);
  };
  const cursor = overlay("line");
  const frame = overlay("rect");
  const set = (element, values) => {
    for (const name in values) element.setAttribute(name, values[name]);
  };
  const place = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  /* The height of a line at x, between its points; undefined beside it. */
  const height = (line, x) => {
    for (let at = line.length - 2; at >= 2; at -= 2) {
      const [left, top, right, bottom] = line.slice(at - 2, at + 2);
      if (x < left || x > right) continue;
      return right > left ? top + (bottom - top) * (x - left) / (right - left) : bottom;
    }
  };
  const value = (plot, y) => {
    const share = (plot.box[3] - y) / (plot.box[3] - plot.box[1]);
    const [from, to] = plot.y;
    return plot.log ? from * (to / from) ** share : from + (to - from) * share;
  };
  const hide = () => {
    tip.hidden = true;
    set(cursor, { x1: 0, x2: 0, y1: 0, y2: 0 });
  };
  const show = (event) => {
    const at = place(event);
    const plot = plots.find(({ box }) => at.x >= box[0] && at.y >= box[1] && at.x <= box[2] && at.y <= box[3]);
    if (!plot) return hide();
    const [left, top, right, bottom] = plot.box;
    const time = plot.x[0] + (plot.x[1] - plot.x[0]) * (at.x - left) / (right - left);
    const rows = [written(time, "s")];
    for (const { name, lines } of plot.curves) {
      const y = lines.map((line) => height(line, at.x)).find((y) => y !== undefined);
      if (y !== undefined) rows.push(`${name}: ${written(value(plot, y), plot.unit)}`);
    }
    set(cursor, { x1: at.x, x2: at.x, y1: top, y2: bottom });
    tip.textContent = rows.join("\n");
    tip.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, room)) + scrollX}px`;
    tip.style.top = `${event.clientY + 14 + scrollY}px`;
  };
  let start = null;
  /* In pixels of the screen: a click is no selection, however far the plot is zoomed. */
  const LEAST = 8;
  const selection = (event) => {
    /* The pointer may leave the picture while a button is down. */
    const { x: left, y: top, width: across, height: down } = svg.viewBox.baseVal;
    const { x: right, y: bottom } = place(event);
    const end = {
      x: Math.min(Math.max(right, left), left + across),
      y: Math.min(Math.max(bottom, top), top + down),
    };
    const [x, y] = [Math.min(start.x, end.x), Math.min(start.y, end.y)];
    return { x, y, width: Math.abs(end.x - start.x), height: Math.abs(end.y - start.y) };
  };
  svg.addEventListener("pointermove", (event) => {
    show(event);
    if (start) set(frame, selection(event));
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointerdown", (event) => {
    show(event);
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    start = place(event);
    svg.setPointerCapture(event.pointerId);
  });
  const forget = () => {
    start = null;
    set(frame, { width: 0, height: 0 });
  };
  svg.addEventListener("pointerup", (event) => {
    if (!start) return;
    const { x, y, width, height } = selection(event);
    const scale = svg.getScreenCTM().a;
    forget();
    if (Math.min(width, height) * scale > LEAST) svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  });
  svg.addEventListener("pointercancel", forget);
  svg.addEventListener("dblclick", () => svg.setAttribute("viewBox", whole));
}
