"""The few shapes that a picture is drawn with, as SVG."""

from __future__ import annotations

from html import escape

#: Pixels of a line of text, and the widest that a letter is on average, by the size of the font.
FONT, LINE, _LETTER = 11, 15, 0.6


class Svg:
    """A picture.

    - `width`: pixels.
    """

    def __init__(self, width: float) -> None:
        self.width = width
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", size: int = FONT
    ) -> None:
        """Write a line."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
            f"{escape(text)}</text>"
        )

    def line(self, places: list[tuple[float, float]], *, colour: str, rest: str = "") -> None:
        """Draw a line from place to place."""
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.parts.append(f'<polyline points="{at}" fill="none" stroke="{colour}" {rest}/>')

    def box(self, x: float, y: float, width: float, height: float, fill: str, of: str = "") -> None:
        """Draw a box; `of` is the text shown under the pointer."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="{fill}"><title>{escape(of)}</title></rect>'
        )

    def ring(self, x: float, y: float, radius: float, colour: str, full: bool, of: str) -> None:
        """Draw a ring, or a disc."""
        fill = colour if full else "none"
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" '
            f'stroke="{colour}" stroke-width="1.5"><title>{escape(of)}</title></circle>'
        )

    def document(self, height: float) -> str:
        """Return the text of the file."""
        hatch = (
            '<defs><pattern id="saved" width="5" height="5" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="5" height="5" fill="white" '
            'fill-opacity="0.72"/><rect width="1.2" height="5" fill="#444444"/></pattern></defs>'
        )
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
                f'height="{height:.0f}" font-family="sans-serif" font-size="{FONT}">',
                hatch,
                '<rect width="100%" height="100%" fill="white"/>',
                *self.parts,
                "</svg>\n",
            )
        )


def length(text: str, size: int = FONT) -> float:
    """Return the pixels that a text takes, rather too many than too few."""
    return _LETTER * size * len(text)


def fitted(text: str, width: float) -> str:
    """Return a text, cut off where it is longer than n pixels."""
    letters = int(width / (_LETTER * FONT))
    return text if len(text) <= letters else text[: max(0, letters - 1)] + "…"
