"""A database that people work with: what they do is drawn from a seed, and includes its schema."""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import psycopg

TABLES: Final = (
    """CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, city text,
    price numeric(10, 2), paid boolean NOT NULL, weight double precision, placed timestamp(3),
    day date, extra jsonb, ref uuid, photo bytea, note text)""",
    "CREATE TABLE stock (place text, item int, count int NOT NULL, PRIMARY KEY (place, item))",
    # Events tell of a row before its change all that it was, and not its key alone.
    "ALTER TABLE stock REPLICA IDENTITY FULL",
)
MIGRATIONS: Final = (
    "ALTER TABLE orders ADD COLUMN discount numeric(6, 3)",
    "ALTER TABLE stock ALTER COLUMN count TYPE bigint",
    "ALTER TABLE orders DROP COLUMN note",
    "ALTER TABLE orders ADD COLUMN town text",
)
IN_ONE: Final = 50
"""Changes in a transaction."""
MARKED: Final = 20
"""Rows of each table."""


class Shop:
    def __init__(self, uri: str, seed: int) -> None:
        self._uri = uri
        self._chance = random.Random(seed)
        self._orders: list[int] = []
        self._next = 1
        self._columns = {"discount": False, "note": True, "town": False}
        self.changes = 0
        self._marks = 0

    def open(self) -> None:
        self._run(lambda cursor: [cursor.execute(one) for one in TABLES])

    def migrate(self, statement: str) -> None:
        self._run(lambda cursor: cursor.execute(statement))
        match statement.split():
            case [*_, "ADD", "COLUMN", name, _] | [*_, "ADD", "COLUMN", name, _, _]:
                self._columns[name] = True
            case [*_, "DROP", "COLUMN", name]:
                self._columns[name] = False

    def work(self, count: int) -> None:
        """So many changes of rows, or a few more."""
        for _ in range(0, count, IN_ONE):
            self._run(self._some)

    def mark(self) -> bytes:
        """What the last changes so far have in their values and no others have: of so many rows of both tables that
        some are in each partition."""
        self._marks += 1
        mark = f"mark {self._marks}."
        order = (
            "INSERT INTO orders (id, customer, city, paid) VALUES (%s, 0, %s, true)"
            " ON CONFLICT (id) DO UPDATE SET city = excluded.city"
        )
        stock = "INSERT INTO stock (place, item, count) VALUES (%s, %s, 0)"

        def leave(cursor: psycopg.Cursor) -> None:
            for number in range(MARKED):
                cursor.execute(order, (-1 - number, mark))
                cursor.execute(stock, (mark, number))

        self._run(leave)
        return mark.encode()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._uri) as connection:
            return connection.execute(sql.encode()).fetchall()

    def _run(self, do: Callable[[psycopg.Cursor], object]) -> None:
        with psycopg.connect(self._uri) as connection, connection.pipeline():
            do(connection.cursor())

    def _some(self, cursor: psycopg.Cursor) -> None:
        for _ in range(IN_ONE):
            drawn = self._chance.random()
            if drawn < 0.15:
                self._count_stock(cursor)
            elif drawn < 0.55 or len(self._orders) < 10:
                self._order(cursor)
            elif drawn < 0.85:
                self._change_order(cursor)
            else:
                self._drop_order(cursor)
        self.changes += IN_ONE

    def _row(self) -> dict[str, object]:
        chance = self._chance
        row: dict[str, object] = {
            "customer": chance.randrange(1 << 31),
            "city": chance.choice([None, "Ulm", "Zürich", "東京", "", "O'Hare \\ \n"]),
            "price": chance.choice([None, Decimal(chance.randrange(-(10**9), 10**9)) / 100]),
            "paid": chance.random() < 0.5,
            "weight": chance.choice([None, 0.1, -1e300, chance.random()]),
            "placed": f"20{chance.randrange(10, 99)}-03-31 23:59:{chance.randrange(60):02}.123",
            "day": chance.choice([None, "1900-01-01", "1969-12-31", "2024-02-29", "9999-12-31"]),
            "extra": chance.choice([None, "{}", '{"a": [1, null]}']),
            "ref": chance.choice([None, "0f4a8b70-8d5c-4d7c-9d0e-0123456789ab"]),
            "photo": chance.choice([None, b"", b"\x00\xff", chance.randbytes(40)]),
        }
        if self._columns["note"]:
            row["note"] = "n" * chance.randrange(30)
        if self._columns["discount"]:
            row["discount"] = chance.choice([None, Decimal(chance.randrange(10**6)) / 1000])
        if self._columns["town"]:
            row["town"] = chance.choice([None, "Ulm"])
        return row

    def _order(self, cursor: psycopg.Cursor) -> None:
        row = {"id": self._next, **self._row()}
        self._orders.append(self._next)
        self._next += 1
        places = ", ".join(["%s"] * len(row))
        sql = f"INSERT INTO orders ({', '.join(row)}) VALUES ({places})"
        cursor.execute(sql.encode(), list(row.values()))

    def _change_order(self, cursor: psycopg.Cursor) -> None:
        """Some of its columns, or its key: that is a delete and a new row to a connector."""
        at = self._chance.randrange(len(self._orders))
        number = self._orders[at]
        if self._chance.random() < 0.05:
            cursor.execute("UPDATE orders SET id = %s WHERE id = %s", (self._next, number))
            self._orders[at] = self._next
            self._next += 1
            return
        row = self._row()
        some = self._chance.sample(sorted(row), 3)
        sql = f"UPDATE orders SET {', '.join(f'{name} = %s' for name in some)} WHERE id = %s"
        cursor.execute(sql.encode(), [*(row[name] for name in some), number])

    def _drop_order(self, cursor: psycopg.Cursor) -> None:
        at = self._chance.randrange(len(self._orders))
        self._orders[at], self._orders[-1] = self._orders[-1], self._orders[at]
        cursor.execute("DELETE FROM orders WHERE id = %s", (self._orders.pop(),))

    def _count_stock(self, cursor: psycopg.Cursor) -> None:
        place, item = self._chance.choice(["A", "B", "Ü"]), self._chance.randrange(100)
        if self._chance.random() < 0.2:
            cursor.execute("DELETE FROM stock WHERE place = %s AND item = %s", (place, item))
            return
        cursor.execute(
            "INSERT INTO stock VALUES (%s, %s, 1) ON CONFLICT (place, item)"
            " DO UPDATE SET count = stock.count + excluded.count",
            (place, item),
        )
