//! The links below an interface, from link messages.

use std::net::IpAddr;

use netlink_packet_route::link::{
    InfoData, InfoGre, InfoGre6, InfoIpTunnel, InfoVti, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::link_watch::kernel::{Stacking, is_pair};

/// The links below an interface, from its link message.
pub(super) fn stacking_of(link: &LinkMessage) -> Stacking {
    let mut stacking = Stacking::default();
    let (mut is_pair_of_two, mut is_elsewhere) = (false, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Link(below) => stacking.below = Some(*below).filter(|&below| below != 0),
            LinkAttribute::Controller(whole) => stacking.part_of = Some(*whole).filter(|&whole| whole != 0),
            // The index belongs to another network namespace.
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => is_pair_of_two = is_pair(&kind.to_string()),
                        LinkInfo::Data(data) => stacking.remote = remote_of(data),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if is_pair_of_two || is_elsewhere {
        stacking.below = None;
    }
    stacking
}

/// The remote address of a tunnel, unless it is unspecified.
fn remote_of(data: &InfoData) -> Option<IpAddr> {
    let remote: Option<IpAddr> = match data {
        InfoData::GreTun(all) | InfoData::GreTap(all) | InfoData::ErSpan(all) => {
            all.iter().find_map(|info| match info {
                InfoGre::Remote(remote) => Some((*remote).into()),
                _ => None,
            })
        }
        InfoData::GreTun6(all) | InfoData::GreTap6(all) | InfoData::Ip6ErSpan(all) => {
            all.iter().find_map(|info| match info {
                InfoGre6::Remote(remote) => Some((*remote).into()),
                _ => None,
            })
        }
        InfoData::IpTunnel(all) => all.iter().find_map(|info| match info {
            InfoIpTunnel::Remote(remote) => Some(*remote),
            _ => None,
        }),
        InfoData::Vti(all) => all.iter().find_map(|info| match info {
            InfoVti::Remote(remote) => Some(*remote),
            _ => None,
        }),
        InfoData::Vxlan(all) => all.iter().find_map(|info| match info {
            InfoVxlan::Group(remote) => Some((*remote).into()),
            InfoVxlan::Group6(remote) => Some((*remote).into()),
            _ => None,
        }),
        _ => None,
    };
    remote.filter(|remote| !remote.is_unspecified() && !remote.is_multicast())
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::InfoKind;

    use super::*;

    fn message(kind: InfoKind, data: Option<InfoData>, more: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        let infos = [LinkInfo::Kind(kind)].into_iter().chain(data.map(LinkInfo::Data)).collect();
        link.attributes = [vec![LinkAttribute::LinkInfo(infos)], more].concat();
        link
    }

    #[test]
    fn the_interface_below_is_named_but_for_pairs_and_other_namespaces() {
        let below = |kind, more| stacking_of(&message(kind, None, more)).below;
        assert_eq!(below(InfoKind::Vlan, vec![LinkAttribute::Link(3)]), Some(3));
        assert_eq!(below(InfoKind::Veth, vec![LinkAttribute::Link(3)]), None);
        assert_eq!(below(InfoKind::MacVlan, vec![LinkAttribute::Link(3), LinkAttribute::LinkNetNsId(0)]), None);
        assert_eq!(below(InfoKind::GreTun, vec![LinkAttribute::Link(0)]), None);
        let port = stacking_of(&message(InfoKind::Vlan, None, vec![LinkAttribute::Controller(7)]));
        assert_eq!(port, Stacking { part_of: Some(7), ..Stacking::default() });
    }

    #[test]
    fn a_tunnel_tells_its_endpoint_unless_it_has_many() {
        let remote = |data| stacking_of(&message(InfoKind::Vxlan, Some(data), vec![])).remote;
        let far = [192, 0, 2, 1];
        assert_eq!(remote(InfoData::Vxlan(vec![InfoVxlan::Id(3), InfoVxlan::Group(far.into())])), Some(far.into()));
        assert_eq!(remote(InfoData::Vxlan(vec![InfoVxlan::Group([239, 1, 1, 1].into())])), None);
        assert_eq!(remote(InfoData::GreTun(vec![InfoGre::Remote(far.into())])), Some(far.into()));
        assert_eq!(remote(InfoData::GreTun(vec![InfoGre::Remote([0; 4].into())])), None);
        assert_eq!(remote(InfoData::IpTunnel(vec![InfoIpTunnel::Remote(far.into())])), Some(far.into()));
    }
}
