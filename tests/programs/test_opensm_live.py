# SPDX-License-Identifier: Apache-2.0
"""Debian's OpenSM and infiniband-diags at hosts of a live fabric (`verbena fabric`)."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fabrics import opensm_tools
from tests.fabrics.test_opensm import simulated
from tests.subnet_process.support import RunningFabric, running_fabric
from tests.support import end_group
from verbena import fabrics
from verbena.fabrics import Fabric, ibnetdiscover

pytestmark = pytest.mark.debian

UP_WITHIN = 60.0
SMALL = fabrics.clos2(4)  # 8 hosts and 6 switches
# Master and standby look at each other as often as that.
HASTY = "sminfo_polling_timeout 300\npolling_retry_number 2\nsweep_interval 1\n"


@pytest.fixture(scope="module")
def tools() -> dict[str, str]:
    found = opensm_tools.environment()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def opensm_environment(tools: dict[str, str], folder: Path) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    return tools | {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}


def topology_file(made: Fabric, folder: Path) -> str:
    path = folder / "fabric.net"
    path.write_text(ibnetdiscover.write(made))
    return str(path)


def sweep_once(
    fabric: RunningFabric, tools: dict[str, str], folder: Path, *options: str, host: str = "h0"
) -> str:
    """Run OpenSM until the subnet is up; return its log."""
    log = folder / "opensm.log"
    done = fabric.run(
        host,
        *("opensm", "-o", "-e", "-f", str(log), "-D", "0x43", "--dump_files_dir", str(folder)),
        *options,
        env=opensm_environment(tools, folder),
        cwd=folder,
        timeout=UP_WITHIN,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return log.read_text(errors="replace")


def assert_is_up(log: str) -> None:
    assert "SUBNET UP" in log, log[-2000:]
    assert not re.findall(r".*\bERR\b.*", log), log[-2000:]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + UP_WITHIN
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def running_opensm(
    fabric: RunningFabric, host: str, tools: dict[str, str], folder: Path, *options: str
) -> Iterator[Callable[[str, int], str]]:
    """Run OpenSM at a host. What it yields waits until its log has a text so often."""
    log = folder / f"{host}.log"
    (folder / "opensm.conf").write_text(HASTY)
    process = fabric.start(
        host,
        *(
            "opensm",
            "-d2",
            "-f",
            str(log),
            "-L",
            "64",  # MB at most: a loop of errors must not fill the disk
            "-D",
            "0x43",
            "-F",
            str(folder / "opensm.conf"),
            *options,
        ),
        env=opensm_environment(tools, folder / host),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def wait_for(text: str, times: int = 1) -> str:
        deadline = time.monotonic() + UP_WITHIN
        while True:
            found = log.read_text(errors="replace") if log.exists() else ""
            if found.count(text) >= times:
                return found
            assert process.poll() is None, found[-2000:]
            assert time.monotonic() < deadline, found[-2000:]
            time.sleep(0.02)

    try:
        yield wait_for
    finally:
        end_group(process)


# ---- sweeps --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine", ["updn", "dnup", "ftree", "lash", "dor", "sssp", "dfsssp", "nue", "minhop", "file"]
)
def test_every_routing_engine_brings_a_subnet_up(
    engine: str, tools: dict[str, str], small: RunningFabric, tmp_path: Path
) -> None:
    options = ["-R", engine]
    if engine == "file":
        sweep_once(small, tools, tmp_path)
        tables = (tmp_path / "opensm-lfts.dump").rename(tmp_path / "tables")
        (tmp_path / "opensm.log").unlink()
        options += ["-U", str(tables)]
    assert_is_up(sweep_once(small, tools, tmp_path, *options))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFabric]:
    folder = tmp_path_factory.mktemp("small")
    with running_fabric(topology_file(SMALL, folder), folder, "--sm", "none") as made:
        yield made


def test_torus_2qos_brings_a_torus_up(tools: dict[str, str], tmp_path: Path) -> None:
    made = fabrics.torus((3, 3, 3), 1)
    ends = {"xp": "s9", "xm": "s18", "yp": "s3", "ym": "s6", "zp": "s1", "zm": "s2"}
    lines = [
        f"{name}_link {made.guid('s0'):#x} {made.guid(other):#x}" for name, other in ends.items()
    ]
    settings = tmp_path / "torus.conf"
    settings.write_text("\n".join(["torus 3 3 3", *lines, ""]))
    options = ["-R", "torus-2QoS", "-Q", "--torus_config", str(settings)]
    with running_fabric("torus:3x3x3", tmp_path, "--sm", "none") as fabric:
        assert_is_up(sweep_once(fabric, tools, tmp_path, *options))


@pytest.mark.parametrize(
    ("topology", "engine"), [("clos2:36", "minhop"), ("clos2:36,leaves=18", "ftree")]
)
def test_opensm_brings_hundreds_of_hosts_up(
    topology: str, engine: str, tools: dict[str, str], tmp_path: Path
) -> None:
    """648 hosts, and 324."""
    with running_fabric(topology, tmp_path, "--sm", "none") as fabric:
        assert_is_up(sweep_once(fabric, tools, tmp_path, "-R", engine))
        states = fabric.control(do="status")["ports"]
    assert set(states) == {"ACTIVE"}


@pytest.mark.parametrize("engine", ["minhop", "ftree", "dfsssp"])
def test_the_tables_are_those_that_opensm_makes_on_ibsim(
    engine: str, tools: dict[str, str], tmp_path: Path
) -> None:
    made = fabrics.xgft((3, 3, 2), (1, 2, 2))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    with simulated(made, engine, theirs):
        pass  # ibsim begins with LIDs of its own, which OpenSM keeps
    discovered = str(theirs / "discovered.txt")
    with running_fabric(discovered, tmp_path, "--sm", "none", "--keep-lids") as fabric:
        assert_is_up(sweep_once(fabric, tools, ours, "-R", engine))
    dumps = [(folder / "opensm-lfts.dump").read_text() for folder in (ours, theirs)]
    assert dumps[0].count("Unicast lids") == len(made.switches)
    assert dumps[0] == dumps[1]


# ---- programs that ask ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def managed(
    tools: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFabric]:
    """324 hosts with OpenSM at the first."""
    folder = tmp_path_factory.mktemp("managed")
    with (
        running_fabric("clos2:36,leaves=18", folder, "--sm", "none") as fabric,
        running_opensm(fabric, "h0", tools, folder) as wait_for,
    ):
        wait_for("SUBNET UP", 1)
        yield fabric


def asked(fabric: RunningFabric, tools: dict[str, str], *program: str, host: str = "h7") -> str:
    done = fabric.run(host, *program, env=tools)
    assert done.returncode == 0, f"{program}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("program", "shown", "times"),
    [
        ("ibnetdiscover", r"^Switch\t|^Ca\t", 324 + 36),
        ("iblinkinfo", r"Active/ +LinkUp", 2 * 648),
        ("ibqueryerrors", r"^## Summary: 360 nodes checked, 0 bad nodes found", 1),
        ("perfquery", r"^PortXmitPkts:\.+\d+$", 1),
        ("perfquery -x", r"^PortXmitPkts:\.+\d+$", 1),
        ("smpquery nodeinfo 1", r"^NodeType:", 1),
        ("smpquery -D portinfo 0,1 1", r"^LinkState:\.+Active$", 1),
        ("saquery -N", r"NodeRecord dump:", 324 + 36),
        ("saquery -p", r"PathRecord dump:", (324 + 36) ** 2),
        ("saquery PIR", r"PortInfoRecord dump:", 324 + 18 * 37 + 18 * 19),
        ("saquery LFTR", r"LFT Record dump:", 36 * 6),
        ("saquery -g", r"MCMember|MGID", 1),
        ("saquery -s", r"^\t\tmaster_sm_base_lid\.+1$", 1),
        ("saquery -c", r"^SA ClassPortInfo:", 1),
        ("saquery SL2VL", r"^SL2VLTableRecord dump:", 324 + 18 * 37**2 + 18 * 19**2),
        ("saquery VLAR", r"VLArbTableRecord|VLArb", 1),
        ("saquery SWIR", r"^SwitchInfoRecord dump:", 36),
        ("saquery LR", r"LinkRecord dump", 2 * 648),
        ("sminfo", r"^sminfo: sm lid \d+ sm guid 0x100001, .* state 3 SMINFO_MASTER$", 1),
        ("ibping -c 2 -f 7", r"^2 packets transmitted, 2 received, 0% packet loss", 1),
        ("ibtracert 2 9", r"^To (ca|switch) .* lid 9-9 ", 1),
        ("ibaddr", r"^GID fe80::10:f LID start", 1),
        ("ibstat", r"State: Active", 1),
        ("ibstatus", r"state:\s+4: ACTIVE", 1),
        ("ibhosts", r"^Ca\t", 324),
        ("ibswitches", r"^Switch\t", 36),
        ("dump_lfts", r"^Unicast lids", 36),
    ],
)
def test_programs_ask_a_subnet_of_324_hosts(
    program: str, shown: str, times: int, tools: dict[str, str], managed: RunningFabric
) -> None:
    output = asked(managed, tools, *program.split())
    found = len(re.findall(shown, output, re.MULTILINE))
    assert found >= times if times == 1 else found == times, output[:2000]


def test_the_built_in_administration_lists_all_paths(tools: dict[str, str], tmp_path: Path) -> None:
    """Of 648 hosts, within the second that the program waits; and the ports with IsSM."""
    with running_fabric("clos2:36", tmp_path) as fabric:
        output = asked(fabric, tools, "saquery", "-p")
        managers = asked(fabric, tools, "saquery", "-s")
    assert output.count("PathRecord dump:") == (648 + 54) ** 2
    assert managers.partition("IsSMdisabled")[0].count("PortInfoRecord dump:") == 1


def test_sysfs_changes_while_a_program_looks(
    tools: dict[str, str], small: RunningFabric, tmp_path: Path
) -> None:
    """The program has its list of files before the subnet manager comes."""
    folder = "/sys/class/infiniband/verbena0/ports/1"
    script = f"cat {folder}/lid; echo; read -r line; cat {folder}/lid {folder}/sm_lid"
    with running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric:
        pipe = subprocess.PIPE
        shell = fabric.start("h3", "bash", "-c", script, stdin=pipe, stdout=pipe)
        assert shell.stdout is not None
        assert shell.stdout.readline() == "0x0\n"
        assert_is_up(sweep_once(fabric, tools, tmp_path))
        output, _ = shell.communicate("go\n", timeout=20)
    lid, sm_lid = output.split()
    assert int(lid, 16) > 1
    assert int(sm_lid, 16) == 1


def test_the_topology_that_is_discovered_is_the_one_that_was_given(
    tools: dict[str, str], managed: RunningFabric
) -> None:
    found = ibnetdiscover.read(asked(managed, tools, "ibnetdiscover"))
    made = fabrics.clos2(36, leaves=18)

    def cables(fabric: Fabric) -> set[frozenset[tuple[str, int]]]:
        return {frozenset({(c.a, c.a_port), (c.b, c.b_port)}) for c in fabric.cables()}

    assert cables(found) == cables(made)


def test_osmtest(tools: dict[str, str], tmp_path: Path) -> None:
    """Its inventory, what it validates with that, and its multicast groups.

    It waits until two requests that OpenSM does not answer have timed out: hence -t."""
    with (
        running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric,
        running_opensm(fabric, "h0", tools, tmp_path) as wait_for,
    ):
        wait_for("SUBNET UP", 1)
        env = opensm_environment(tools, tmp_path / "test")
        for flow in ("c", "v", "m"):
            done = fabric.run(
                "h3",
                *("osmtest", "-t", "200", "-f", flow, "-i", "inventory", "-l", f"{flow}.log"),
                env=env,
                cwd=tmp_path,
                timeout=60,
            )
            assert "PASS" in done.stdout, f"{flow}: {done.stdout}{done.stderr}"


# ---- changes -------------------------------------------------------------------------------------


def test_a_cut_link_makes_opensm_sweep(tools: dict[str, str], tmp_path: Path) -> None:
    """By trap 128 of the switches at its ends, and again when it is repaired."""
    with (
        running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric,
        running_opensm(fabric, "h0", tools, tmp_path) as wait_for,
    ):
        wait_for("SUBNET UP", 1)
        assert "Active" in asked(fabric, tools, "ibstat", host="h5")
        fabric.control(do="cut", link="e0-a0")
        log = wait_for("SUBNET UP", 2)
        assert "trap 128" in log.lower() or "num:128" in log, log[-3000:]
        fabric.control(do="restore", link="e0-a0")
        wait_for("SUBNET UP", 3)
        states = fabric.control(do="status")["ports"]
    assert set(states) == {"ACTIVE"}


def test_a_limited_member_reaches_full_ones(tools: dict[str, str], tmp_path: Path) -> None:
    partitions = tmp_path / "partitions"
    partitions.write_text("Default=0x7fff, ipoib: ALL=limited, SELF=full;\n")
    with (
        running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric,
        running_opensm(fabric, "h0", tools, tmp_path, "-P", str(partitions)) as wait_for,
    ):
        wait_for("SUBNET UP")
        assert "MGID" in asked(fabric, tools, "saquery", "-g", host="h5")
        assert "Lid 1 port 1" in asked(fabric, tools, "perfquery", "1", "1", host="h5")


@pytest.mark.parametrize(
    ("link", "host", "port"),
    [("e0-a0", "h0", ["-D", "0,1", "3"]), ("h5:1", "h5", ["-D", "0", "1"])],
)
def test_restore_says_how_a_disabled_port_is_enabled(
    link: str, host: str, port: list[str], tools: dict[str, str], tmp_path: Path
) -> None:
    with running_fabric("clos2:4", tmp_path) as fabric:
        asked(fabric, tools, "ibportstate", *port, "disable", host=host)
        assert fabric.control(do="status")["ports"]["DOWN"] == 2
        with pytest.raises(OSError, match="is disabled by management") as refused:
            fabric.control(do="restore", link=link)
        advice = re.search(r"--host (\w+) -- (.* enable)`", str(refused.value))
        assert advice, refused.value
        asked(fabric, tools, *advice[2].split(), host=advice[1])
        deadline = time.monotonic() + UP_WITHIN
        while set(fabric.control(do="status")["ports"]) != {"ACTIVE"}:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("priority", "state", "guid", "master"),
    [("0", "STANDBY", 0x100001, "MASTER"), ("5", "MASTER", 0x10000B, "STANDBY")],
)
def test_opensm_and_the_built_in_manager_agree(
    priority: str, state: str, guid: int, master: str, tools: dict[str, str], tmp_path: Path
) -> None:
    """OpenSM stands by, or its priority makes it the master and the built-in one stands by."""
    with (
        running_fabric("clos2:4", tmp_path) as fabric,
        running_opensm(fabric, "h5", tools, tmp_path, "-p", priority) as second,
    ):
        second(f"Entering {state} state")
        if state == "MASTER":
            second("SUBNET UP")
        shown = asked(fabric, tools, "sminfo", host="h2")
        built_in = fabric.control(do="status")["manager"]
    assert f"guid {guid:#x}" in shown
    assert "SMINFO_MASTER" in shown
    assert f"built in, {master} at h0" in built_in


def test_a_standby_takes_over(tools: dict[str, str], tmp_path: Path) -> None:
    with (
        running_fabric("clos2:4", tmp_path, "--sm", "none") as fabric,
        running_opensm(fabric, "h5", tools, tmp_path, "-p", "9") as second,
    ):
        second("SUBNET UP", 1)
        with running_opensm(fabric, "h0", tools, tmp_path, "-p", "12") as first:
            first("SUBNET UP", 1)
            second("Entering STANDBY state")
            state = asked(fabric, tools, "sminfo", host="h2")
            assert "guid 0x100001" in state
            assert "SMINFO_MASTER" in state
        second("Entering MASTER state", 2)
        second("SUBNET UP", 2)


# ---- simulated fabrics ---------------------------------------------------------------------------

SCENARIO = """
[fabric]
topology = "clos2"
radix = 4
rate = "4xSDR"
[switch]
flow = "credits"
room = "64 KiB"
[adapter]
framing = "infiniband"
[management]
begin = "bare"
[[traffic]]
name = "pairs"
pattern = "shift"
by = 4
size = "128 MiB"
"""


def traffic_of(fabric: RunningFabric) -> str:
    return str(fabric.control(do="status")["traffic"][-1])


def test_opensm_manages_a_simulated_fabric_whose_flows_survive_a_cut(
    tools: dict[str, str], tmp_path: Path
) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    options = "--simulated", "--pace", "0.05", "--sm", "none"
    with (
        running_fabric(str(scenario), tmp_path, *options) as fabric,
        running_opensm(fabric, "h0", tools, tmp_path) as wait_for,
    ):
        assert traffic_of(fabric).startswith("traffic: begins when")
        assert_is_up(wait_for("SUBNET UP", 1))
        wait_until(lambda: "0 of 8 flows" in traffic_of(fabric))
        fabric.control(do="cut", link="e0-a0")
        wait_for("SUBNET UP", 2)
        assert fabric.control(do="status")["ports"] == {"ACTIVE": 30, "DOWN": 2}
        wait_until(lambda: "8 of 8 flows" in traffic_of(fabric))
        fabric.control(do="restore", link="e0-a0")
        wait_for("SUBNET UP", 3)
        assert fabric.control(do="status")["failures"] == 0
        fabric.process.send_signal(signal.SIGINT)
        fabric.process.wait(timeout=UP_WITHIN)
        report = fabric.log.read_text()
    assert "8 of 8 flows of 128 MiB" in report
    assert re.search(r"[1-8] flows stood still, the last until", report), report


def test_diagnostics_of_debian_work_in_a_simulated_fabric(
    tools: dict[str, str], tmp_path: Path
) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO.replace("128 MiB", "64 KiB"))
    with running_fabric(str(scenario), tmp_path, "--simulated") as fabric:
        wait_until(lambda: "8 of 8 flows" in traffic_of(fabric))
        assert "simulated, MASTER at h0, LID 1" in fabric.control(do="status")["manager"]
        found = fabric.run("h5", "ibnetdiscover", env=tools)
        assert len(ibnetdiscover.read(found.stdout).graph) == 14, found.stderr
        for host in ("h5", "h0"):  # h0 is the manager's
            paths = fabric.run(host, "saquery", "-p", env=tools)  # an answer of many packets
            assert paths.stdout.count("slid") >= 64, paths.stderr
        assert fabric.run("h0", "ibhosts", env=tools).stdout.count("Ca") == 8
        counted = fabric.run("h5", "perfquery", "-x", "1", "1", env=tools).stdout
        sent = re.search(r"PortXmitData:\.*(\d+)", counted)
        assert sent, counted
        assert int(sent[1]) > 0, counted
        assert not re.search(r"unable|fail", fabric.run("h5", "ibqueryerrors", env=tools).stderr)
