//! The networks of mobile hosts in the programs' maps.

use std::collections::BTreeSet;

use aya::maps::MapData;
use aya::maps::lpm_trie::{Key, LpmTrie};
use holdover_host::ebpf::Object;

use super::PathError;
use crate::config::HostPrefixes;
use crate::network::Network;

/// The map of the networks of mobile hosts.
pub(super) type Networks = LpmTrie<MapData, [u8; 16], u32>;

/// Tells the programs the networks of mobile hosts (true) with the lengths of their hosts' prefixes, and exceptions (false). Entries of an
/// earlier configuration are removed.
pub(super) fn set(
    object: &mut Object,
    networks: &[(Network, bool)],
    prefixes: &HostPrefixes,
) -> Result<Networks, PathError> {
    let mut map = object.take::<Networks>("networks")?;
    add(&mut map, networks, prefixes)?;
    let wanted: BTreeSet<_> =
        networks.iter().map(|(network, _)| (key(network).prefix_len(), key(network).data())).collect();
    let former: Vec<_> = map.keys().filter_map(Result::ok).collect();
    for key in former.iter().filter(|key| !wanted.contains(&(key.prefix_len(), key.data()))) {
        map.remove(key)?;
    }
    Ok(map)
}

/// Tells the programs more networks.
pub(super) fn add(map: &mut Networks, networks: &[(Network, bool)], prefixes: &HostPrefixes) -> Result<(), PathError> {
    for (network, is_mobile) in networks {
        let of_host = if *is_mobile { network.mapped_bits(prefixes.bits_in(network)) } else { 0 };
        map.insert(&key(network), u32::from(of_host), 0)?;
    }
    Ok(())
}

/// Fills a map of networks.
pub(super) fn fill(
    object: &mut Object,
    name: &'static str,
    kinds: impl Iterator<Item = (Network, u32)>,
) -> Result<(), PathError> {
    let mut map = object.take::<LpmTrie<MapData, [u8; 16], u32>>(name)?;
    for (network, kind) in kinds {
        map.insert(&key(&network), kind, 0)?;
    }
    Ok(())
}

fn key(network: &Network) -> Key<[u8; 16]> {
    let (address, bits) = network.mapped();
    Key::new(bits.into(), address.octets())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
    use holdover_testbed::harness::skip;
    use holdover_wire::{Packet, Segment};

    use super::super::{KernelPath, Place};
    use super::*;

    /// An Ethernet frame with a segment from this address.
    fn frame(from: IpAddr) -> Vec<u8> {
        let (to, kind): (&str, [u8; 2]) =
            if from.is_ipv4() { ("192.0.2.1", [8, 0]) } else { ("2001:db8::1", [0x86, 0xdd]) };
        let packet = Packet::new(from, to.parse().unwrap(), Segment::default()).emit().unwrap();
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, &packet].concat()
    }

    // Claim: The gateway's programs name the mobile host of an address as the daemon does, for prefixes of all kinds of lengths.
    #[test]
    fn programs_name_mobile_hosts_as_the_daemon_does() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let prefixes: HostPrefixes = toml::from_str(
            "\"10.3.0.0/16\" = 24\n\"10.3.8.0/24\" = 32\n\"10.4.0.0/16\" = 16\n\"10.5.0.0/16\" = 27\n\"fd00:3::/32\" = 64\n\
             \"fd00:4::/32\" = 77\n\"fd00:5::/32\" = 128\n\"fd00:6::/32\" = 32\n\"fd00:7::/32\" = 96\n\"fd00:8::/32\" = 127\n",
        )
        .unwrap();
        let served = prefixes.networks().chain([network("10.2.0.0/16")]).map(|network| (network, true));
        let served: Vec<_> = served.chain([(network("10.3.9.0/24"), false)]).collect();
        let place = Place { most_mobiles: 100, prefixes: &prefixes, ..Place::nowhere() };
        let path = match KernelPath::load(&place, &served, None) {
            Ok(path) => path,
            Err(error) => return skip(error),
        };
        let mut expected = BTreeSet::new();
        for text in [
            "10.2.1.7",
            "10.3.1.7",
            "10.3.1.8",
            "10.3.2.7",
            "10.3.8.7",
            "10.3.9.7",
            "10.4.5.6",
            "10.5.5.95",
            "10.6.0.1",
            "fd00:3:0:7:8::9",
            "fd00:3:0:7:9::9",
            "fd00:3::1",
            "fd00:4:1:2:3:ffff:ffff:ffff",
            "fd00:5::5",
            "fd00:6:7:8:9::",
            "fd00:7::abcd:1234",
            "fd00:8::ff",
            "fd00:9::1",
        ] {
            let address: IpAddr = text.parse().unwrap();
            let (data, mut out) = (frame(address), vec![0; 200]);
            let options = TestRunOptions { data_in: Some(&data), data_out: Some(&mut out), ..TestRunOptions::new() };
            path.object.program::<SchedClassifier>("ingress").unwrap().test_run(options).unwrap();
            let fitting = served.iter().filter(|(network, _)| network.contains(address));
            if fitting.max_by_key(|(network, _)| network.bits()).is_some_and(|(_, is_mobile)| *is_mobile) {
                expected.insert(path.host_of(address));
            }
        }
        assert_eq!(path.all().into_iter().map(|(mobile, _)| mobile).collect::<BTreeSet<_>>(), expected);
        assert_eq!(expected.len(), 13);
    }
}
