# SPDX-License-Identifier: Apache-2.0
"""Models of networks: topologies, routing, and traffic. Programs and verbena.sim import this.

    from verbena import fabrics

    fabric = fabrics.fat_tree(8, rate="100GbE", length_m=5)
    routes = fabrics.route(fabric, "ftree")
    routes.check()                               # loops, unreachable pairs, credit loops
    print(routes.effective_bisection().mean())

Needs networkx: ``pip install networkx``, or ``pip install '.[sim]'`` in the checkout.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

try:
    import networkx as _networkx  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"verbena.fabrics needs {error.name}: pip install '.[sim]' in the checkout installs all"
        f" that the simulator draws and writes with, pip install {error.name} that alone",
        name=error.name,
    ) from None

from . import dot, ibnetdiscover
from .collectives import (
    binomial_broadcast,
    chain_broadcast,
    collective_cost,
    double_tree_all_reduce,
    double_tree_broadcast,
    halving_doubling_all_reduce,
    recursive_doubling_all_gather,
    recursive_halving_reduce_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
)
from .deadlock import CreditLoop, credit_loop
from .draw import draw, positions, svg
from .engines import centre, ecmp, min_hop, up_down
from .engines import fat_tree as d_mod_k
from .errors import FabricError, FabricWarning
from .fabric import Cable, Fabric
from .flows import FLOW, PART, Workload, flows, read_csv, write_csv
from .lanes import LaneMap
from .multicast import MulticastTree, multicast_tree
from .patterns import (
    all_to_all,
    by_ports,
    incast,
    permutation,
    poisson,
    shift,
)
from .rates import Rate, ethernet, infiniband, rate
from .routes import Detours, Hop, PortGroups, Routes
from .sizes import PUBLISHED, Distribution, distribution, read_distribution
from .sssp import dfsssp, sssp
from .structured import dimension_order, dragonfly_minimal, dragonfly_ugal, dragonfly_valiant
from .tables import LINK, Tables
from .topologies import (
    chain,
    clos2,
    clos3,
    diamond,
    dragonfly,
    dumbbell,
    fat_tree,
    one_switch,
    pair,
    parking_lot,
    rails,
    ring,
    torus,
    xgft,
)

__all__ = [
    "Cable",
    "CreditLoop",
    "Detours",
    "Distribution",
    "ENGINES",
    "FLOW",
    "Fabric",
    "FabricError",
    "FabricWarning",
    "Hop",
    "LINK",
    "LaneMap",
    "MulticastTree",
    "PART",
    "PUBLISHED",
    "PortGroups",
    "Rate",
    "Routes",
    "Tables",
    "Workload",
    "all_to_all",
    "binomial_broadcast",
    "by_ports",
    "centre",
    "chain",
    "chain_broadcast",
    "clos2",
    "clos3",
    "collective_cost",
    "credit_loop",
    "diamond",
    "distribution",
    "dot",
    "double_tree_all_reduce",
    "double_tree_broadcast",
    "dragonfly",
    "draw",
    "dumbbell",
    "ethernet",
    "fat_tree",
    "flows",
    "halving_doubling_all_reduce",
    "ibnetdiscover",
    "incast",
    "infiniband",
    "multicast_tree",
    "one_switch",
    "pair",
    "parking_lot",
    "permutation",
    "poisson",
    "positions",
    "rails",
    "rate",
    "read_csv",
    "read_distribution",
    "recursive_doubling_all_gather",
    "recursive_halving_reduce_scatter",
    "ring",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "route",
    "shift",
    "svg",
    "torus",
    "tree_all_reduce",
    "write_csv",
    "xgft",
]

# Named as OpenSM names them, where it has them.
ENGINES: dict[str, Callable[..., Routes]] = {
    "minhop": min_hop,
    "updn": up_down,
    "ftree": d_mod_k,
    "dor": dimension_order,
    "dragonfly": dragonfly_minimal,
    "valiant": dragonfly_valiant,
    "ugal": dragonfly_ugal,
    "sssp": sssp,
    "dfsssp": dfsssp,
    "ecmp": ecmp,
}


def route(fabric: Fabric, engine: str = "minhop", **options: Any) -> Routes:
    """Route a fabric by an engine of ENGINES; ``options`` are the engine's own.

    Raises FabricError when there is no such engine, or it cannot route this fabric. Gives a
    FabricWarning for each of the routes' ``notes``, as when ``updn`` finds no roots.
    """
    if not isinstance(fabric, Fabric):
        raise TypeError(f"fabric is a {type(fabric).__name__}, and not a Fabric")
    if not isinstance(engine, str) or engine not in ENGINES:
        raise FabricError(f"no routing engine {engine!r}: there are {', '.join(ENGINES)}")
    known = [*inspect.signature(ENGINES[engine]).parameters][1:]
    for name in options:
        if name not in known:
            raise TypeError(
                f"the engine {engine} has no option {name!r}: it has {', '.join(known) or 'none'}"
            )
    made = ENGINES[engine](fabric, **options)
    for note in made.notes:
        warnings.warn(note, FabricWarning, stacklevel=2)
    return made
