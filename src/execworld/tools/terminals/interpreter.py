"""What control sequences do to the screen, and what a terminal answers when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from execworld.tools.terminals.screen import Screen

_ALTERNATE_SCREEN: Final = frozenset({47, 1047, 1049})
_SAVES_CURSOR: Final = 1049
_SAVE_CURSOR_ONLY: Final = 1048
_BRACKETED_PASTE: Final = 2004
_ORIGIN: Final = 6
_WRAP: Final = 7
_CURSOR_KEYS: Final = 1
_SHOW_CURSOR: Final = 25
_PRIVATE_MODES: Final = frozenset({_ORIGIN, _WRAP, _SHOW_CURSOR})
_INSERT: Final = 4
_NEW_LINE: Final = 20
_ANSI_MODES: Final = frozenset({_INSERT, _NEW_LINE})

_MOST_REPEATED: Final = 4096

# A program that asks for the colours of the terminal waits a while for an answer before it ends.
_COLOURS: Final = {
    "10;?": "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "11;?": "\x1b]11;rgb:0000/0000/0000\x1b\\",
}


class Interpreter:
    """A `SequenceHandler` that keeps a screen.

    Args:
        screen: What is changed.
        answer: Gets what the terminal types by itself, in answer to a query. Nothing in it comes from the program but
            numbers, so that no program can have words of its own typed to the next one.
        command_string: Gets each whole command string: its kind and body.
    """

    def __init__(
        self, screen: Screen, answer: Callable[[str], None], command_string: Callable[[str, str], None]
    ) -> None:
        self._screen = screen
        self._answer = answer
        self._command_string = command_string
        self._last_character = ""
        self.bracketed_paste = False
        self.application_cursor_keys = False
        self._controls: dict[str, Callable[[], None]] = {
            "\b": screen.backspace,
            "\t": self._tab,
            "\n": screen.linefeed,
            "\v": screen.linefeed,
            "\f": screen.linefeed,
            "\r": screen.carriage_return,
            "\x0e": screen.shift_out,
            "\x0f": screen.shift_in,
        }
        self._escapes: dict[str, Callable[[], None]] = {
            "c": self._reset,
            "D": screen.index,
            "E": self._next_line,
            "M": screen.reverse_index,
            "H": self._set_tab_stop,
            "7": screen.save_cursor,
            "8": screen.restore_cursor,
        }
        # Each takes the first number, 0 when it was not given.
        self._sequences: dict[str, Callable[[int], None]] = {
            "@": screen.insert_characters,
            "A": screen.cursor_up,
            "B": screen.cursor_down,
            "C": screen.cursor_forward,
            "D": screen.cursor_back,
            "E": screen.cursor_down1,
            "F": screen.cursor_up1,
            "G": screen.cursor_to_column,
            "I": self._tabs,
            "J": screen.erase_in_display,
            "K": screen.erase_in_line,
            "L": screen.insert_lines,
            "M": screen.delete_lines,
            "P": screen.delete_characters,
            "S": screen.scroll_up,
            "T": screen.scroll_down,
            "X": screen.erase_characters,
            "Z": screen.back_tab,
            "`": screen.cursor_to_column,
            "a": screen.cursor_forward,
            "b": self._repeat,
            "c": self._device_attributes,
            "d": self._cursor_to_line,
            "e": screen.cursor_down,
            "g": screen.clear_tab_stop,
            "n": self._device_status,
            "s": lambda _: screen.save_cursor(),
            "t": self._window,
            "u": lambda _: screen.restore_cursor(),
        }

    def draw(self, text: str) -> None:
        self._last_character = text[-1]
        self._screen.draw(text)

    def control(self, character: str) -> None:
        handler = self._controls.get(character)
        if handler is not None:
            handler()

    def escape(self, intermediate: str, final: str) -> None:
        if intermediate in ("(", ")"):
            self._screen.define_charset(final, mode=intermediate)
        elif (intermediate, final) == ("#", "8"):
            self._screen.alignment_display()
        elif not intermediate and final in self._escapes:
            self._escapes[final]()

    def csi(self, private: str, numbers: tuple[int, ...], intermediate: str, final: str) -> None:
        first = numbers[0]
        if intermediate:
            self._with_intermediate(private, first, intermediate, final)
        elif private:
            self._private(private, numbers, final)
        elif final in ("H", "f"):
            self._screen.cursor_position(first, numbers[1] if len(numbers) > 1 else 0)
        elif final == "r":
            self._screen.set_margins(first, (numbers[1] if len(numbers) > 1 else 0) or None)
        elif final in ("h", "l"):
            self._set_modes(tuple(number for number in numbers if number in _ANSI_MODES), final == "h")
        elif final in self._sequences:
            self._sequences[final](first)

    def command_string(self, kind: str, body: str) -> None:
        if kind == "OSC" and body[:2] in ("0;", "2;"):
            self._screen.set_title(body[2:])
        elif kind == "OSC" and body in _COLOURS:
            self._answer(_COLOURS[body])
        self._command_string(kind, body)

    def _private(self, private: str, numbers: tuple[int, ...], final: str) -> None:
        if private == "?" and final in ("h", "l"):
            self._set_private_modes(numbers, final == "h")
        elif private == "?" and final == "n" and numbers[0] == 6:
            self._answer(f"\x1b[?{self._position()}R")
        elif private == "?" and final in ("J", "K"):
            self._sequences[final](numbers[0])
        elif private == ">" and final == "c" and numbers[0] == 0:
            self._answer("\x1b[>0;0;0c")  # a VT100 of version 0

    def _with_intermediate(self, private: str, first: int, intermediate: str, final: str) -> None:
        if (intermediate, final) == ("!", "p"):
            self._screen.set_margins()
            self._set_modes((_INSERT,), False)
            self._set_private_modes((_WRAP,), True)
            self._set_private_modes((_ORIGIN, _CURSOR_KEYS), False)
        elif (intermediate, final) == ("$", "p"):
            self._answer(f"\x1b[{private}{first};0$y")  # mode not recognised

    def _set_modes(self, numbers: tuple[int, ...], on: bool, *, private: bool = False) -> None:
        if numbers:
            change = self._screen.set_mode if on else self._screen.reset_mode
            change(*numbers, private=private)

    def _set_private_modes(self, numbers: tuple[int, ...], on: bool) -> None:
        for number in numbers:
            if number in _PRIVATE_MODES:
                self._set_modes((number,), on, private=True)
            elif number in _ALTERNATE_SCREEN:
                self._switch_screen(number, on)
            elif number == _SAVE_CURSOR_ONLY:
                (self._screen.save_cursor if on else self._screen.restore_cursor)()
            elif number == _BRACKETED_PASTE:
                self.bracketed_paste = on
            elif number == _CURSOR_KEYS:
                self.application_cursor_keys = on

    def _switch_screen(self, number: int, on: bool) -> None:
        if on:
            self._screen.enter_alternate(clear=number == _SAVES_CURSOR)
        else:
            self._screen.leave_alternate(restore_cursor=number == _SAVES_CURSOR)

    def _reset(self) -> None:
        self.bracketed_paste = self.application_cursor_keys = False
        self._screen.reset()

    def _next_line(self) -> None:
        self._screen.carriage_return()
        self._screen.index()

    def _tab(self) -> None:
        self._screen.ensure_hbounds()
        self._screen.tab()

    def _tabs(self, count: int) -> None:
        for _ in range(min(count or 1, self._screen.columns)):
            self._tab()

    def _set_tab_stop(self) -> None:
        self._screen.ensure_hbounds()
        self._screen.set_tab_stop()

    def _cursor_to_line(self, number: int) -> None:
        self._screen.cursor_position(number, self._screen.cursor.x + 1)

    def _repeat(self, count: int) -> None:
        if self._last_character:
            self._screen.draw(self._last_character * min(count or 1, _MOST_REPEATED))

    def _device_attributes(self, number: int) -> None:
        if number == 0:
            self._answer("\x1b[?62;22c")  # a VT220 with colour

    def _device_status(self, number: int) -> None:
        if number == 5:
            self._answer("\x1b[0n")
        elif number == 6:
            self._answer(f"\x1b[{self._position()}R")

    def _position(self) -> str:
        screen = self._screen
        top = screen.margins.top if screen.margins is not None and _ORIGIN << 5 in screen.mode else 0
        return f"{screen.cursor.y - top + 1};{min(screen.cursor.x, screen.columns - 1) + 1}"

    def _window(self, number: int) -> None:
        if number == 18:
            self._answer(f"\x1b[8;{self._screen.lines};{self._screen.columns}t")
