"""Product sheets."""

from functools import partial

from kvbind.notes import words
from kvbind.notes.kind import Attribute, Kind, Subject
from kvbind.notes.words import Words

_THINGS = ("pump", "lamp", "drill", "camera", "scale", "heater", "radio", "printer", "kettle", "motor", "sensor", "fan")


def _product(drawn: Words) -> Subject:
    brand = drawn.draw(words.brand)
    return Subject(f"the {brand} {drawn.rng.choice(_THINGS)}", f"the {brand}", "it")


PRODUCT = Kind(
    "product",
    _product,
    {
        "maker": Attribute(
            words.firm,
            (
                "{S} is made by {v}.",
                "The maker of {N} is {v}.",
                "{S} comes from {v}.",
                "{S} is a product of {v}.",
                "{S} was designed by {v}.",
                "It is {v} that builds {N}.",
                "{S} bears the label of {v}.",
                "{S} is manufactured by {v}.",
                "Behind {N} stands {v}.",
                "{S} leaves the works of {v}.",
                "The firm that makes {N} is {v}.",
            ),
            (
                "Who makes {N}?",
                "Which firm builds {N}?",
                "What is the maker of {N}?",
                "By whom is {N} manufactured?",
            ),
        ),
        "model code": Attribute(
            words.code,
            (
                "{S} has the model code {v}.",
                "The model code of {N} is {v}.",
                "{S} is sold under the code {v}.",
                "Order {N} with the code {v}.",
                "{S} is stamped {v}.",
                "The plate of {N} reads {v}.",
                "Catalogues list {N} as {v}.",
                "{S} carries the code {v}.",
                "{S} is known in stock as {v}.",
                "Code {v} stands for {N}.",
                "On the box of {N} is printed {v}.",
            ),
            (
                "What is the model code of {N}?",
                "Which code does {N} have?",
                "Under which code is {N} sold?",
                "What code stands for {N}?",
            ),
        ),
        "price": Attribute(
            words.number,
            (
                "{S} costs {v} crowns.",
                "The price of {N} is {v} crowns.",
                "{S} sells for {v} crowns.",
                "Buyers pay {v} crowns for {N}.",
                "{S} is priced at {v} crowns.",
                "{S} can be had for {v} crowns.",
                "{S} is on offer at {v} crowns.",
                "The list price of {N} is {v} crowns.",
                "For {v} crowns {s} is yours.",
                "{S} goes for {v} crowns.",
                "A sum of {v} crowns buys {N}.",
            ),
            (
                "How many crowns does {N} cost?",
                "What is the price of {N} in crowns?",
                "For how many crowns is {N} sold?",
                "How many crowns buy {N}?",
            ),
        ),
        "weight": Attribute(
            words.weight,
            (
                "{S} weighs {v}.",
                "The weight of {N} is {v}.",
                "{S} has a mass of {v}.",
                "{S} brings {v} to the scales.",
                "Packed, {s} weighs {v}.",
                "{S} tips the scales at {v}.",
                "Porters lift {v} with {N}.",
                "With {v} {s} is not light.",
                "{S} was weighed at {v}.",
                "The scales show {v} for {N}.",
                "{S} is a load of {v}.",
            ),
            (
                "How much does {N} weigh?",
                "What is the weight of {N}?",
                "How heavy is {N}?",
                "What mass does {N} have?",
            ),
        ),
        "release": Attribute(
            partial(words.date, first=1990),
            (
                "{S} was released on {v}.",
                "{S} came out on {v}.",
                "The release of {N} was on {v}.",
                "Shops have had {N} since {v}.",
                "{S} was launched on {v}.",
                "{S} has been on sale since {v}.",
                "On {v} {s} reached the market.",
                "The first sale of {N} was on {v}.",
                "{S} was shown first on {v}.",
                "The launch of {N} took place on {v}.",
                "{S} went on sale on {v}.",
            ),
            (
                "When was {N} released?",
                "On which date did {N} come out?",
                "What is the release date of {N}?",
                "Since when has {N} been on sale?",
            ),
        ),
        "factory": Attribute(
            words.town,
            (
                "{S} is built in {v}.",
                "{S} is assembled in {v}.",
                "The factory of {N} is in {v}.",
                "{S} leaves a plant in {v}.",
                "Workers in {v} assemble {N}.",
                "The plant for {N} stands in {v}.",
                "{S} is shipped from {v}.",
                "A factory in {v} turns out {N}.",
                "{S} is produced in {v}.",
                "The town that builds {N} is {v}.",
                "{S} has its plant in {v}.",
            ),
            (
                "Where is {N} built?",
                "In which town is {N} assembled?",
                "Where is the factory of {N}?",
                "In which town is {N} produced?",
            ),
        ),
    },
)
