//! Attaches to an interface, and takes over the state of an earlier process.

use std::collections::BTreeMap;

use bytes::BytesMut;
use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_flow::Rules;
use holdover_gateway::daemon;
use holdover_gateway::divert::{Prober, Source};
use holdover_host::neighbours::Neighbours;
use holdover_host::{Namespace, Requests, Tun, TunConfig, TunError, clock};

use super::attachments::Attachments;
use super::behind::Behind;
use super::cluster::Adoptions;
use super::connections::Moves;
use super::refresh::Refresh;
use super::solicit::Solicitations;
use super::{Engine, EngineError, RENEW_EVERY, Unsendable, setup};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::handoff::Handoff;
use crate::icmp_errors::IcmpErrors;
use crate::interface::Interface;
use crate::network::Network;
use crate::packet_files::{PacketFiles, Restored};
use crate::path::{KernelPath, PathError, Place};
use crate::sender::Sender;
use crate::split::Prepared;
use crate::waker::Waker;
use crate::watch::Watch;

/// The queue of the device while the daemon does not read it: thousands of mobile hosts that return together make their senders send at once.
const QUEUE: u32 = 8000;

/// The longest packet of a TUN device.
const LONGEST_PACKET: u32 = 65_535;

impl Engine {
    /// Attaches to an interface, and takes over the state of an earlier process.
    pub(crate) fn open(now: Instant, name: &str, config: &Config) -> Result<Self, EngineError> {
        let socket = |what| move |source| EngineError::Socket { what, source };
        let mut requests = Requests::open().map_err(socket("a netlink socket"))?;
        let interface = Interface::find(&mut requests, name)?;
        let networks = setup::networks(&interface, &mut requests, config)?;
        let (packet_files, restored) = PacketFiles::open(&config.buffer.directory.join(name))?;
        let namespace = Namespace::current()?;
        let tun = tun(&namespace, &interface)?;
        let divert_to = Interface::find(&mut requests, tun.name())?.index;
        let prepared = Prepared::open(config, &interface, &networks, &namespace)?;
        let mut path = attach(name, &interface, divert_to, config, prepared.as_ref(), &networks)?;
        path.renew(now)?;
        // The kernel may have taken long to verify the programs.
        let attached_at = clock::now();
        let splitter = prepared.map(|prepared| prepared.start(attached_at)).transpose()?;
        path.renew_split(attached_at, splitter.is_some())?;
        let mut engine = Self {
            is_gone: false,
            networks,
            config: config.clone(),
            requests,
            neighbours: Neighbours::open().map_err(socket("a netlink socket"))?,
            watch: Watch::open(&interface).map_err(socket("a netlink socket"))?,
            tun,
            path,
            packet_files,
            sender: Sender::open().map_err(socket("a packet socket"))?,
            icmp_errors: IcmpErrors::open(),
            diverter: setup::diverter(config),
            prober: Prober::new(config.silence()),
            splitter,
            echo: setup::echo(&interface, config).map_err(socket("an ICMP socket"))?,
            waker: config.follows_connections().then(|| Waker::new(now, config)),
            handoff: Handoff::open(&config.handoff, config.follows_connections())?,
            cluster: Cluster::open(now, config)?,
            attachments: Attachments::new(now),
            adoptions: Adoptions::new(now, config.buffer.most_mobiles),
            moves: Moves::default(),
            opened_at: now,
            unconfirmed: BTreeMap::new(),
            behind: Behind::new(now),
            refused: None,
            buffer: BytesMut::new(),
            packet: Vec::new(),
            advanced_at: now,
            ask_carrier_at: now,
            look_at: now,
            renew_at: now + RENEW_EVERY,
            neighbours_kept: Refresh::new(now),
            solicitations: Solicitations::default(),
            unsendable: Unsendable::default(),
            interface,
        };
        // Addresses assigned before the subscription.
        engine.follow_addresses();
        engine.restore(now, restored);
        if engine.path.is_taken_over() {
            engine.take_over(now);
        }
        engine.handle_link(now);
        engine.advance(now)?;
        Ok(engine)
    }

    fn restore(&mut self, now: Instant, restored: Vec<Restored>) {
        let packets = restored.len();
        for found in restored {
            self.diverter.restore(now, found.mobile, found.came_at, found.len, found.stored);
        }
        if packets > 0 {
            let mobiles = self.diverter.len();
            tracing::info!(packets, mobiles, "took over the packets of an earlier process");
        }
    }

    /// An earlier process was killed, and its programs have continued: its absent hosts stay absent until heard, or
    /// until the router in front of them is; and ACKs that it may not have shown for the others are released.
    fn take_over(&mut self, now: Instant) {
        let all = self.path.all();
        // In a cluster another gateway may own them by now: they have to be heard again.
        if self.cluster.is_none() {
            self.attachments.take_over(all.iter().map(|(mobile, _)| *mobile));
        }
        let (away, present): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, seen)| seen.was_away());
        tracing::info!(away = away.len(), present = present.len(), "took over the programs of an earlier process");
        for (mobile, _) in away {
            self.diverter.handle_report(now, mobile, Source::Buffer, Presence::Away);
        }
        if let Some(waker) = &mut self.waker {
            self.path.begin_turn(now);
            waker.handle_taken_over(now, present.into_iter().map(|(mobile, _)| mobile), &mut self.path);
        }
    }
}

/// The device to which packets are diverted.
fn tun(namespace: &Namespace, interface: &Interface) -> Result<Tun, TunError> {
    let config = TunConfig {
        tx_queue_len: QUEUE,
        offload: true,
        ..TunConfig::new(&format!("hgw{}", interface.index), LONGEST_PACKET)
    };
    Tun::open(namespace, &config)
}

/// Loads the programs and attaches them.
fn attach(
    name: &str,
    interface: &Interface,
    divert_to: u32,
    config: &Config,
    prepared: Option<&Prepared>,
    networks: &[(Network, bool)],
) -> Result<KernelPath, PathError> {
    let (thesis, flows) = (setup::thesis(config, networks), setup::flows(config));
    let (follows, pins, modes) = (config.follows_connections(), config.pins(), config.modes_text());
    let place = Place {
        interface: name,
        index: interface.index,
        frame_len: interface.frame_len().unwrap_or(0),
        divert_to,
        most_mobiles: config.buffer.most_mobiles,
        most_connections: if follows { config.hold_back.most_connections } else { 1 },
        most_detailed: if follows { config.hold_back.most_detailed } else { 1 },
        rules: if follows { daemon::rules() } else { Rules::default() },
        link: setup::first_link(config),
        flows: flows.as_ref(),
        prefixes: &config.mobiles.prefixes,
        modes: &modes,
        thesis: thesis.as_ref(),
        split: prepared.map(Prepared::place),
        pins: pins.as_deref(),
    };
    KernelPath::attach(place, networks)
}
