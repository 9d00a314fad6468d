"""What every picture has: a figure made once, controls, a sentence in words, a static copy.

A picture is three pure steps, `compute` (the learner's function → arrays), `draw` (arrays → artists that
already exist) and `describe` (arrays → one sentence), so each can be tested without a browser.
"""

from __future__ import annotations

import io
from html import escape
from typing import Any

import anywidget
import ipywidgets
import matplotlib as mpl
import traitlets
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from transformer_lab.checking.probes.problems import problem_of
from transformer_lab.language import _
from transformer_lab.widgets.box import Box

DPI = 100
STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.facecolor": "white"}

_SHOW_IMAGE = """
function render({ model, el }) {
  const image = document.createElement("img");
  image.style.maxWidth = "100%";
  let url = null;
  const draw = () => {
    const next = URL.createObjectURL(new Blob([model.get("png")], { type: "image/png" }));
    image.alt = model.get("alt");
    image.src = next;
    if (url) URL.revokeObjectURL(url);
    url = next;
  };
  model.on("change:png", draw);
  draw();
  el.appendChild(image);
  // The static copy of this picture is for readers without widgets; here it would stand twice.
  requestAnimationFrame(() => {
    const area = el.closest(".jp-OutputArea");
    if (area) area.querySelectorAll(".jp-RenderedImage").forEach((copy) => (copy.style.display = "none"));
  });
  return () => { if (url) URL.revokeObjectURL(url); };
}
export default { render };
"""


class LiveImage(anywidget.AnyWidget):
    """A PNG with a text alternative that changes together with it (ipywidgets.Image has none)."""

    _esm = _SHOW_IMAGE
    png = traitlets.Bytes(b"").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)

    def show(self, png: bytes, alt: str) -> None:
        """Show a picture and its text alternative; both arrive in one message."""
        with self.hold_sync():
            self.alt, self.png = alt, png

    def __repr__(self, **_: Any) -> str:
        return "LiveImage()"


class Picture:
    """Base of all pictures. A subclass defines `controls`, `start`, `compute`, `draw` and `describe`.

    size: width and height of the figure in inches (at 100 dots an inch).
    """

    size: tuple[float, float] = (7.0, 3.2)

    def __init__(self) -> None:
        self.inputs: dict[str, ipywidgets.Widget] = self.controls()
        self.problem = self._words = ""
        self._data: Any = None
        self._started = False
        with mpl.rc_context(STYLE):
            self.figure = Figure(figsize=self.size, dpi=DPI)
            FigureCanvasAgg(self.figure)
        self._attempt()

    # ---- what a subclass defines ----

    def controls(self) -> dict[str, ipywidgets.Widget]:
        """Return the controls by name; their values are passed to `compute` under these names."""
        return {}

    def compute(self, **values: Any) -> Any:
        """Call the learner's function and return the arrays to draw (a pure function of the controls)."""
        raise NotImplementedError

    def start(self, figure: Figure, data: Any) -> None:
        """Create axes and artists, with fixed limits. Called once."""
        raise NotImplementedError

    def draw(self, data: Any) -> None:
        """Update the artists. Called at every change of a control."""
        raise NotImplementedError

    def describe(self, data: Any) -> str:
        """Return one sentence that says in words what the picture shows."""
        raise NotImplementedError

    # ---- what every picture does ----

    def values(self) -> dict[str, Any]:
        """Return the controls' current values by name."""
        return {name: control.value for name, control in self.inputs.items()}

    def summary(self) -> str:
        """Return the picture in words, or why there is none yet."""
        return self.problem or self._words

    def png(self) -> bytes:
        """Return the figure as a PNG file's bytes."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
        return buffer.getvalue()

    def _attempt(self) -> None:
        """Compute from the learner's code and draw; turn what is raised on the way into a sentence."""
        try:
            data = self.compute(**self.values())
        except Exception as error:
            self.problem = _why_not_computed(error)
            return
        try:
            self._draw(data)
            self._words = self.describe(data)
        except Exception as error:  # NaN, a wrong shape, None: results that no picture can be made of
            self.problem = _(
                "What your code returned cannot be drawn ({brief}). Run its check first."
            ).format(brief=_brief(error))
            return
        self._data, self.problem = data, ""

    def _draw(self, data: Any) -> None:
        if self._started:
            self.draw(data)
            return
        with mpl.rc_context(STYLE):
            self.figure.clear()  # an attempt that failed half-way may have left axes behind
            self.figure.set_layout_engine("constrained")
            self.start(self.figure, data)
            self.draw(data)
            # Settle the layout once: a figure laid out anew at every key press would jump and be slow.
            self.figure.canvas.draw()
            self.figure.set_layout_engine("none")
        self._started = True

    def set(self, **values: Any) -> Picture:
        """Set controls from code, as a learner's hand would, and return the picture."""
        for name, value in values.items():
            self.inputs[name].value = value
        self._attempt()
        return self

    def _ipython_display_(self) -> None:
        if self.problem:
            display({"text/html": f"<p>{escape(self.problem)}</p>", "text/plain": self.problem}, raw=True)
            return
        static = {"image/png": self.png(), "text/plain": self.summary()}
        display(static, raw=True, metadata={"image/png": {"alt": self.summary()}})
        if self.inputs:
            display(self._live())

    def _live(self) -> ipywidgets.Widget:
        image, words = LiveImage(), ipywidgets.HTML()

        def refresh(_change: Any = None) -> None:
            self._attempt()
            if not self.problem:
                image.show(self.png(), self.summary())
            words.value = f'<p role="status" aria-live="polite">{escape(self.summary())}</p>'

        for control in self.inputs.values():
            control.observe(refresh, names="value")
        refresh()
        return Box([*self._rows(), image, words])

    def _rows(self, a_row: int = 3) -> list[ipywidgets.Widget]:
        controls = list(self.inputs.values())
        return [ipywidgets.HBox(controls[i : i + a_row]) for i in range(0, len(controls), a_row)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _why_not_computed(error: Exception) -> str:
    trouble = problem_of(error)
    if trouble.todo:
        text = _("This picture is drawn from your code. Finish TODO {todo}, then run this cell again.")
        return text.format(todo=trouble.todo)
    return _("This picture is drawn from your code, and it stopped. {text}").format(text=trouble.text)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def int_slider(
    name: str, value: int, low: int, high: int, step: int = 1, help: str = ""
) -> ipywidgets.Widget:
    """Return a slider over integers, reachable by keyboard, with its name in front."""
    return ipywidgets.IntSlider(
        value, low, high, step, description=_(name), tooltip=_(help or name), style=_WIDE
    )


def float_slider(
    name: str, value: float, low: float, high: float, step: float, help: str = ""
) -> ipywidgets.Widget:
    """Return a slider over real numbers, reachable by keyboard, with its name in front."""
    return ipywidgets.FloatSlider(
        value, min=low, max=high, step=step, description=_(name), tooltip=_(help or name), style=_WIDE
    )


def choice(name: str, options: Any, value: Any = None, help: str = "") -> ipywidgets.Widget:
    """Return a drop-down list; `options` are values, or (label, value) pairs."""
    first = options[0][1] if isinstance(options[0], tuple) else options[0]
    pairs = [option if isinstance(option, tuple) else (str(option), option) for option in options]
    return ipywidgets.Dropdown(
        options=[(_(label), value) for label, value in pairs],
        value=first if value is None else value,
        description=_(name),
        tooltip=_(help or name),
        style=_WIDE,
    )


def switch(name: str, value: bool, help: str = "") -> ipywidgets.Widget:
    """Return a check box."""
    return ipywidgets.Checkbox(value, description=_(name), tooltip=_(help or name), indent=False)


_WIDE = {"description_width": "initial"}
