"""bfrun reads which hosts there are, and spreads the ranks over them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bluefog_pg.launch.runner.hosts import Host, is_here, parse_hosts, read_hostfile, spread


def test_hosts_on_the_command_line() -> None:
    assert parse_hosts("a:4,b.example:12,10.0.0.3") == [
        Host("a", 4),
        Host("b.example", 12),
        Host("10.0.0.3", 1),
    ]


@pytest.mark.parametrize("text", ["", "a:", "a:b", "a:4:5", "a b", "a:4,", ":4", "-o x:1 y"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no host; write NAME:SLOTS"):
        parse_hosts(text)


def test_a_name_that_ssh_would_take_for_an_option_is_refused() -> None:
    with pytest.raises(ValueError, match="is no host"):
        parse_hosts("-oProxyCommand=x:1")


def test_a_host_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="host 'a' is named twice"):
        parse_hosts("a:4,b:1,a:2")


def test_hostfile(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two machines\na slots=4\n\nb slots=2 max_slots=8  # the old one\nc\n")
    assert read_hostfile(file) == [Host("a", 4), Host("b", 2), Host("c", 1)]
    file.write_text("a slots=four\n")
    with pytest.raises(ValueError, match="'a slots=four' is no host"):
        read_hostfile(file)
    file.write_text("# nothing\n")
    with pytest.raises(ValueError, match="no host is named"):
        read_hostfile(file)


def test_hosts_are_filled_one_after_the_other() -> None:
    hosts = [Host("a", 4), Host("none", 0), Host("b", 2), Host("c", 2)]
    places = [(host.name, list(ranks)) for host, ranks in spread(hosts, 5)]
    assert places == [("a", [0, 1, 2, 3]), ("b", [4])]
    with pytest.raises(ValueError, match="9 ranks need 9 slots, and the hosts have 8"):
        list(spread(hosts, 9))


def test_which_host_is_this_one() -> None:
    assert is_here("localhost")
    assert is_here("127.0.0.1")
    assert is_here(socket.gethostname())
    assert not is_here("192.0.2.77")  # an address that is only for documents
    with pytest.raises(ValueError, match=r"host 'nowhere\.invalid' is not known"):
        is_here("nowhere.invalid")
