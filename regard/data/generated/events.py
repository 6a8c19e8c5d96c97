"""Templates of generated sentences: kinds of events, each in several wordings, with the questions that it answers.

A slot is named after the kind of value that fills it (`{day}`, a second one `{day2}`) or after a list of `THINGS`.
A question holds the slots that distinguish its event from others of its kind; no event answers a question of another
kind.
"""

from dataclasses import dataclass

THINGS = {
    "item": ("bicycle", "camera", "guitar", "printer", "sofa", "painting", "telescope", "wardrobe", "kayak", "mirror"),
    "shop": ("bakery", "bookshop", "café", "pharmacy", "flower shop", "repair shop", "dance studio", "tea house"),
    "house": ("library", "museum", "orchestra", "observatory", "opera", "hospital", "zoo", "university", "archive"),
    "work": ("railway bridge", "new tunnel", "harbour wall", "wooden pier", "stone dam", "city wall", "canal", "fence"),
    "crop": ("wheat", "rice", "coffee", "cotton", "barley", "rye", "maize", "cocoa", "tea", "sugar cane"),
    "fair": ("book fair", "film festival", "jazz week", "chess tournament", "flower show", "poetry week", "carnival"),
    "liquid": ("milk", "water", "cream", "olive oil", "apple juice", "white wine", "vinegar", "coconut milk"),
    "powder": ("flour", "sugar", "butter", "cheese", "oats", "ground almonds", "dark chocolate", "corn starch"),
    "paper": ("annual report", "thesis", "tax form", "manuscript", "final plan", "application", "draft", "budget"),
    "cause": ("school", "shelter for animals", "sports club", "children's home", "nature reserve", "choir"),
}
PLAIN = tuple(
    """\
Nobody knew what to say.
The meeting was shorter than expected.
It rained for most of the afternoon.
Chapter 12 is the longest one in the book.
Please close the door when you leave.
The number 42 bus was late again.
All three windows had to be replaced.
The Internet was down for a while.
Most of the guests had already left.
She answered the question in Latin.
They tried it twice and then gave up.
Room 305 is at the end of the corridor.
Nothing else was decided.
The second half was better than the first.
He never reads the instructions.
The press wrote about it at length.
Flight 718 has been delayed.
Some details are still missing.
The Ministry has not replied yet.
Two of the five answers were wrong.
I have heard this story many times.
It is a pity that the shops were closed.
Everyone agreed in the end.
Version 3 of the program is much faster.
""".splitlines()
)
"""Sentences without any value; some have capitals or numbers all the same."""


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of event: its wordings, and its questions, each with the slot that answers it."""

    wordings: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]


TEMPLATES = """\
{person} was born in {place} on {day}.
On {day}, {person} was born in {place}.
{person} came into the world on {day} in {place}.
{place} is where {person} was born on {day}.
place ? Where was {person} born?
place ? What is the birthplace of {person}?
day ? When was {person} born?
day ? What is the date of birth of {person}?
person ? Who was born in {place}?

{person} married {person2} in {place} on {day}.
The wedding of {person} and {person2} took place in {place} on {day}.
On {day}, {person} and {person2} celebrated their wedding in {place}.
place ? Where did {person} and {person2} marry?
day ? When did {person} marry {person2}?
person2 ? Whom did {person} marry?
person ? Who married {person2}?

{person} bought a {item} for {price}.
{person} paid {price} for a {item}.
A {item} was sold to {person} for {price}.
price ? How much did {person} pay for the {item}?
price ? What was the price of the {item}?
person ? Who bought the {item}?

{person} flew from {place} to {place2} on {day}.
On {day}, {person} took a plane from {place} to {place2}.
The plane that took {person} to {place2} left {place} on {day}.
place ? Where did the flight of {person} begin?
place ? Where did {person} fly from?
place2 ? Where did {person} fly to?
day ? When did {person} fly to {place2}?
person ? Who flew to {place2}?

{person} walked {distance} through {place}.
In {place}, {person} went {distance} on foot.
It was {distance} that {person} walked in {place}.
distance ? How far did {person} walk?
place ? Where did {person} go for a walk?
person ? Who walked through {place}?

{person} opened a {shop} in {place} in {month}.
In {month}, a {shop} was opened in {place} by {person}.
The {shop} that {person} started in {place} has been open since {month}.
place ? Where is the {shop} of {person}?
month ? When did {person} open the {shop}?
month ? Since when has the {shop} of {person} been open?
person ? Who opened the {shop} in {place}?

{person} became director of the {house} in {year}.
Since {year}, the {house} has been directed by {person}.
The {house} made {person} its director in {year}.
year ? When did {person} become director of the {house}?
year ? Since when has {person} been director of the {house}?
person ? Who directs the {house}?
person ? Who became director of the {house}?

{person} lent {person2} {price}.
{person2} borrowed {price} from {person}.
{person2} owes {person} {price}.
A loan of {price} went from {person} to {person2}.
price ? How much did {person2} borrow from {person}?
person ? Who lent money to {person2}?
person2 ? Who borrowed money from {person}?

The {work} in {place} is {length} long.
In {place} there is a {work} with a length of {length}.
{place} has a {work} that measures {length}.
length ? How long is the {work} in {place}?
length ? What is the length of the {work}?
place ? Where is the {work}?

On {day}, {temperature} was measured in {place}.
The thermometer in {place} showed {temperature} on {day}.
{place} reported a temperature of {temperature} on {day}.
temperature ? What temperature was measured in {place}?
temperature ? How warm was it in {place}?
day ? When was the temperature measured in {place}?
place ? Where was it {temperature}?

The parcel from {person} to {person2} weighs {mass}.
{person} sent {person2} a parcel of {mass}.
{person2} received a parcel of {mass} from {person}.
mass ? How heavy was the parcel from {person}?
mass ? What is the weight of the parcel to {person2}?
person ? Who sent the parcel to {person2}?
person2 ? Who received the parcel from {person}?

Farmers in {place} harvested {load} of {crop} in {year}.
In {year}, {load} of {crop} came from the fields of {place}.
The {crop} harvest in {place} was {load} in {year}.
load ? How large was the {crop} harvest in {place}?
year ? In which year was {crop} harvested in {place}?
place ? Where was {crop} harvested?

The {fair} in {place} begins on {day} and ends on {day2}.
From {day} to {day2}, the {fair} takes place in {place}.
{place} holds its {fair} between {day} and {day2}.
day ? When does the {fair} in {place} begin?
day2 ? When does the {fair} in {place} end?
day2 ? What is the last day of the {fair}?
place ? Where does the {fair} take place?

{person} drove through {place} at {speed}.
In {place}, {person} was driving at {speed}.
The police in {place} stopped {person} at {speed}.
speed ? How fast did {person} drive?
speed ? At what speed did {person} drive through {place}?
place ? Where did {person} drive at {speed}?
person ? Who drove through {place}?

{person} rents a flat of {floor} in {place} for {price} a month.
The flat of {person} in {place} has {floor} and costs {price} a month.
For {price} a month, {person} has a flat with {floor} in {place}.
floor ? How large is the flat of {person}?
price ? How much is the rent of {person}?
price ? How much does the flat of {person} cost a month?
place ? Where does {person} rent a flat?
person ? Who rents a flat in {place}?

The invoice of {day} over {fund} was paid by {person}.
{person} paid the invoice of {day}, which was over {fund}.
{person} settled an invoice over {fund} with the date {day}.
fund ? How high was the invoice that {person} paid?
day ? What date was on the invoice that {person} paid?
person ? Who paid the invoice over {fund}?

According to {person}, {share} of the voters in {place} stayed at home.
{person} says that {share} of the voters in {place} did not vote.
In {place}, {share} of the voters did not go to the polls, as {person} reports.
share ? What share of the voters in {place} did not vote?
person ? Who reports about the voters in {place}?
place ? About the voters of which place does {person} speak?

The recipe of {person} needs {volume} of {liquid} and {dose} of {powder}.
{person} mixes {dose} of {powder} with {volume} of {liquid}.
Take {volume} of {liquid} and {dose} of {powder}, writes {person}.
volume ? How much {liquid} does {person} use?
dose ? How much {powder} does {person} use?
person ? Who mixes {powder} with {liquid}?

{person} wrote to {person2} from {place} on {day}.
On {day}, {person2} got a letter from {person}, who was in {place}.
The letter of {day} from {person} to {person2} was posted in {place}.
place ? Where did {person} write the letter to {person2}?
day ? Which date has the letter from {person}?
person2 ? To whom did {person} write?
person ? Who wrote to {person2}?

{person} must hand in the {paper} by {day}.
The {paper} is due on {day}, and {person} is responsible for it.
By {day}, the {paper} of {person} has to be finished.
day ? When is the {paper} due?
day ? By when must {person} finish the {paper}?
person ? Who is responsible for the {paper}?

{person} donated {fund} to a {cause} in {place}.
A {cause} in {place} received a donation of {fund} from {person}.
Thanks to {person}, a {cause} in {place} has {fund} more.
fund ? How much did {person} donate?
place ? Where is the {cause} to which {person} gave money?
person ? Who gave money to the {cause}?

{place} sold {area} of forest to {place2} in {year}.
In {year}, {place2} bought {area} of forest from {place}.
Since {year}, {area} of forest that belonged to {place} has belonged to {place2}.
area ? How much forest did {place} sell?
year ? When did {place2} buy the forest?
place ? Who sold forest to {place2}?
place2 ? Who bought forest from {place}?

{person} climbed a tower of {length} in {place}.
The tower in {place} that {person} climbed is {length} high.
In {place}, {person} went up a tower with a height of {length}.
length ? How high is the tower that {person} climbed?
place ? Where did {person} climb a tower?
person ? Who climbed the tower in {place}?

An exhibition about {person} opens in {place} on {day}.
From {day} on, an exhibition in {place} shows the life of {person}.
{place} opens its exhibition about {person} on {day}.
place ? Where is the exhibition about {person}?
day ? When does the exhibition about {person} open?
person ? Whom is the exhibition in {place} about?

{person} won a prize of {fund} in {month}.
In {month}, a prize of {fund} went to {person}.
The jury gave {person} a prize of {fund} in {month}.
fund ? How much prize money did {person} win?
month ? When did {person} win the prize?
person ? Who won the prize of {fund}?

The road from {place} to {place2} is {distance} long.
It is {distance} by road from {place} to {place2}.
Between {place} and {place2} lie {distance} of road.
distance ? How long is the road from {place} to {place2}?
place2 ? Where does the road from {place} lead?
place ? Where does the road to {place2} begin?
"""
"""The events, a paragraph each: its wordings, then the slots and their questions."""


def read_event(paragraph: str) -> Event:
    """The event of a paragraph of TEMPLATES."""
    rows = [line.partition(" ? ") for line in paragraph.splitlines()]
    wordings = tuple(text for text, mark, _ in rows if not mark)
    return Event(wordings, tuple((slot, question) for slot, mark, question in rows if mark))


EVENTS = tuple(map(read_event, TEMPLATES.strip().split("\n\n")))
