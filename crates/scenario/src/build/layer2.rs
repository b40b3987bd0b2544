//! Links with a second layer.

use holdover_base::Duration;
use holdover_sim::{AddressLoss, Families, Layer2, LinkKind, OutageKind};

use super::nodes::Nodes;
use crate::error::ErrorKind;
use crate::file::{Link, LinkAddresses, Outages};
use crate::problem::{Problem, Under};

/// The longest forwarding delay of a bridge port with spanning tree: listening and learning, 15 s each (IEEE 802.1D).
const MOST_FORWARDS_AFTER: Duration = Duration::from_secs(30);

/// The second layer of `link`. A problem lies below the link.
pub(super) fn of(link: &Link, nodes: &Nodes) -> Result<Layer2, Problem> {
    let kind = link.kind.map_or(LinkKind::Wire, |kind| kind.0);
    if kind == LinkKind::Wire {
        return nothing_more(link).map(|()| Layer2::default());
    }
    let [a, b] = &link.between;
    if let (Ok(a), Ok(b)) = (nodes.node(a), nodes.node(b))
        && nodes.role(a) == nodes.role(b)
    {
        let message = "such a link is between a host and a router; make it a \"wire\", or put a router between hosts";
        return Err(Problem::conflict(message)).under("kind");
    }
    let (nat, slaac) = (link.nat.unwrap_or(false), link.slaac.unwrap_or(false));
    if slaac && kind != LinkKind::Ethernet {
        return Err(Problem::conflict("router advertisements are only sent on an \"ethernet\"")).under("slaac");
    }
    let mut layer2 = Layer2 { kind, nat, slaac, ..Layer2::default() };
    if let Some(outages) = &link.outages {
        of_outages(outages, &mut layer2).under("outages")?;
    }
    Ok(layer2)
}

fn of_outages(outages: &Outages, layer2: &mut Layer2) -> Result<(), Problem> {
    layer2.outage = outages.layer2.map_or(OutageKind::Silent, |outage| outage.0);
    layer2.families = outages.family.map_or(Families::Both, |families| families.0);
    if layer2.families != Families::Both && layer2.outage != OutageKind::Silent {
        let message = "a port that goes down takes both families with it: outages of one family are \"silent\"";
        return Err(Problem::conflict(message)).under("family");
    }
    let after = outages.addresses_after.map(|after| after.0);
    layer2.addresses = match outages.addresses.map_or(LinkAddresses::Kept, |addresses| addresses.0) {
        LinkAddresses::Kept if after.is_some() => {
            let message = "\"addresses_after\" is only used with addresses that are \"lost\" or \"renewed\"";
            return Err(Problem::conflict(message)).under("addresses_after");
        }
        LinkAddresses::Kept => AddressLoss::Kept,
        lost => {
            let other = lost == LinkAddresses::Renewed;
            AddressLoss::Lost { after: after.unwrap_or(Duration::ZERO), other }
        }
    };
    Ok(())
}

/// Checks that a plain wire has no settings of links with a second layer.
fn nothing_more(link: &Link) -> Result<(), Problem> {
    for (key, given) in [("nat", link.nat), ("slaac", link.slaac)] {
        if given.is_some() {
            return Err(only_with_layer2(key)).under(key);
        }
    }
    let Some(outages) = &link.outages else { return Ok(()) };
    let given = [
        ("layer2", outages.layer2.is_some()),
        ("family", outages.family.is_some()),
        ("addresses", outages.addresses.is_some()),
        ("addresses_after", outages.addresses_after.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => Err(only_with_layer2(key)).under(key).under("outages"),
    }
}

/// The forwarding delay.
pub(super) fn forwards_after(link: &Link, layer2: Layer2) -> Result<Duration, Problem> {
    match link.forwards_after {
        None => Ok(Duration::ZERO),
        Some(_) if layer2.kind == LinkKind::Wire => Err(only_with_layer2("forwards_after")).under("forwards_after"),
        Some(after) if after.0 > MOST_FORWARDS_AFTER => {
            let accepted = format!("at most {MOST_FORWARDS_AFTER}");
            Err(Problem::unexpected(ErrorKind::BadValue, format!("\"{}\"", after.0), accepted)).under("forwards_after")
        }
        Some(after) => Ok(after.0),
    }
}

fn only_with_layer2(key: &str) -> Problem {
    Problem::conflict(format!(
        "\"{key}\" is only used with kind = \"ethernet\" or \"raw-ip\"; a wire has no second layer"
    ))
}
