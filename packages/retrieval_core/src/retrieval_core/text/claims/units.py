"""Units of measurement, as far as one can be turned into another by a factor."""

from __future__ import annotations

import re

CURRENCIES = {"$": "$", "USD": "$", "€": "€", "EUR": "€", "£": "£", "GBP": "£", "¥": "¥"}

_TIME = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "wk": 604800.0}
_LENGTH = {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}
_MASS = {"µg": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6, "lb": 453.59237, "oz": 28.349523125}
_VOLUME = {"ml": 1e-3, "cl": 1e-2, "l": 1.0}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3}
_POWER = {"mW": 1e-3, "W": 1.0, "kW": 1e3, "MW": 1e6, "GW": 1e9}
_ENERGY = {"Wh": 1.0, "kWh": 1e3, "MWh": 1e6, "GWh": 1e9}
_AREA = {"mm²": 1e-6, "cm²": 1e-4, "m²": 1.0, "ha": 1e4, "km²": 1e6}
_SPACE = {"cm³": 1e-6, "m³": 1.0, "km³": 1e9}
_OTHER = (
    "%", "pp", "$", "€", "£", "¥", "CN¥", "CHF", "₹", "₽", "kr", "zł", "°C", "°F", "mo", "y", "V", "Hz", "px", "rpm",
    "dB", "m/s", "km/h",
)  # fmt: skip
_KINDS = (_TIME, _LENGTH, _MASS, _VOLUME, _BYTES, _POWER, _ENERGY, _AREA, _SPACE)

_WRITTEN = {
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "day": "d", "week": "wk", "month": "mo",
    "year": "y", "yr": "y", "millisecond": "ms", "microsecond": "µs", "us": "µs", "μs": "µs", "nanosecond": "ns",
    "millimetre": "mm", "millimeter": "mm", "centimetre": "cm", "centimeter": "cm", "metre": "m", "meter": "m",
    "kilometre": "km", "kilometer": "km", "mile": "mi", "inch": "in", "inches": "in", "foot": "ft", "feet": "ft",
    "microgram": "µg", "mcg": "µg", "μg": "µg", "milligram": "mg", "gram": "g", "kilogram": "kg", "kilo": "kg",
    "tonne": "t", "pound": "lb", "ounce": "oz", "millilitre": "ml", "milliliter": "ml", "litre": "l", "liter": "l",
    "byte": "B", "kilobyte": "kB", "KB": "kB", "megabyte": "MB", "gigabyte": "GB", "terabyte": "TB", "KiB": "Ki",
    "MiB": "Mi", "GiB": "Gi", "kibibyte": "Ki", "mebibyte": "Mi", "gibibyte": "Gi", "percent": "%", "per cent": "%",
    "dollar": "$", "euro": "€", "USD": "$", "EUR": "€", "GBP": "£", "°": "°", "degree": "°", "degrees celsius": "°C",
    "degrees fahrenheit": "°F", "watt": "W", "kilowatt": "kW", "volt": "V", "hertz": "Hz", "pixel": "px", "mL": "ml",
    "L": "l", "yen": "¥", "yuan": "CN¥", "renminbi": "CN¥", "franc": "CHF", "rupee": "₹", "rouble": "₽", "ruble": "₽",
    "krone": "kr", "kroner": "kr", "krona": "kr", "kronor": "kr", "zloty": "zł",
    "hectare": "ha", "megawatt": "MW", "milliwatt": "mW", "kilowatt-hour": "kWh",
    "hrs": "h", "mins": "min", "secs": "s", "° C": "°C", "° F": "°F",
}  # fmt: skip
_KNOWN = {
    **{name: name for kind in _KINDS for name in kind},
    **{name: name for name in _OTHER},
    **_WRITTEN,
    **{name + "s": sign for name, sign in _WRITTEN.items() if len(name) > 2 and name.isalpha()},
}
_UNIT = re.compile(
    r"[ -]?(%|per cent|percentage points?|(?:square |cubic |sq )[A-Za-z]{1,12}|[A-Za-z]{1,3}[\u00b2\u00b3]"
    r"|degrees (?:[Cc]elsius|[Ff]ahrenheit)|\u00b0[ ]?[CF]?|km/h|m/s|[$\u20ac\u00a3\u00a5]"
    r"|[A-Za-z\u00b5\u03bc]{1,12})(?![\w/])"
)


def unit_of(following: str) -> tuple[str, int]:
    """Return the usual sign of the unit that a text begins with, behind a space or a hyphen, and where the unit ends.

    Where it begins with none, these are the empty text and 0.
    """
    match = _UNIT.match(following)
    if match is None or match[0] in {" in", " a", " t", "-t", " B"}:  # a word of English, mostly
        return "", 0
    name = match[1]
    sign = _KNOWN.get(name) or _KNOWN.get(name.lower() if len(name) > 3 else "", "") or _squared(name)
    return sign, match.end() if sign else 0


def _squared(name: str) -> str:
    """Return the sign of a unit that is written with several words, or with a power; empty where none is known."""
    if name.startswith("percentage"):
        return "pp"
    first, _, rest = name.partition(" ")
    length = _KNOWN.get(rest or name[:-1], "") if rest or name[-1] in "²³" else ""
    return length + ("³" if first == "cubic" or name.endswith("³") else "²") if length in _LENGTH else ""


def same_quantity(number: float, unit: str, other: float, other_unit: str) -> bool:
    """Whether numbers with units say the same, as 1.5 h and 90 min, or 90 and 90 min, but not 90 s and 90 min."""
    if unit == other_unit or not unit or not other_unit:
        return number == other
    if "°" in {unit, other_unit} and unit[0] == other_unit[0]:
        return number == other
    for kind in _KINDS:
        if unit in kind and other_unit in kind:
            one, two = number * kind[unit], other * kind[other_unit]
            return abs(one - two) <= 1e-9 * max(abs(one), abs(two))
    return number == other and "m" in {unit, other_unit}  # metres, minutes or millions
