"""A report as one HTML page that loads nothing: tables, and figures as inline SVG."""

from collections.abc import Sequence

from jinja2 import Environment

from kvbind.bench.cells import NOISE
from kvbind.bench.drawing import draw
from kvbind.bench.sections import NOTES, TITLE, Section

# Well-formed XML too, so that it can be checked.
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-size: 13px; white-space: nowrap }
caption { text-align: left; font-weight: bold; padding: .3rem 0 }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd }
td.noise { color: #767676 }
.wide { overflow-x: auto; margin: 1rem 0 }
figure { margin: 1.5rem 0 }
svg { max-width: 100%; height: auto }
ul { color: #444 }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<ul>{% for note in notes %}
<li>{{ note }}</li>{% endfor %}
</ul>
{% for section in sections %}{% set number = loop.index %}
<h2>{{ section.title }}</h2>
<ul>{% for fact in section.facts %}
<li>{{ fact }}</li>{% endfor %}
</ul>
{% for table in section.tables %}
<div class="wide"><table>
<caption>{{ table.title }}</caption>
<thead><tr>{% for header in table.headers %}<th scope="col">{{ header }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in table.rows %}
<tr>{% for cell in row %}{% if loop.first %}<th scope="row">{{ cell }}</th>\
{% else %}<td{% if noise in cell %} class="noise"{% endif %}>{{ cell }}</td>{% endif %}{% endfor %}</tr>{% endfor %}
</tbody>
</table></div>
{% endfor %}{% for figure in section.figures %}{% if figure.panels %}
<figure>
<figcaption>{{ figure.title }}</figcaption>
{{ draw(figure, number) | safe }}
</figure>
{% else %}
<p>{{ figure.title }}: left out, {{ figure.missing }}.</p>
{% endif %}{% endfor %}{% endfor %}
</body>
</html>
"""


def html(sections: Sequence[Section]) -> str:
    """The page; raises BenchError where matplotlib is missing."""
    template = Environment(autoescape=True).from_string(PAGE)
    return template.render(
        title=TITLE,
        notes=NOTES,
        noise=NOISE,
        sections=sections,
        draw=lambda figure, number: draw(figure, f"s{number}-{figure.name}"),
    )
