//! The daemon and the agent on the same hosts: both keep connections open.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use holdover_host::Process;
use holdover_host::control_client::answers;
use holdover_host::process::LogTo;
use holdover_testbed::Namespace;

use crate::Test;
use crate::daemon::{PATIENCE, Place};
use crate::network::Network;
use crate::outage::{connected, connected_to, expect, swap, talking};
use crate::transfer::{Transfer, Way, first_after};

pub(crate) const TESTS: &[Test] = &[("with_the_agent_many_connections_resume", many_connections_resume)];

/// Starts `holdover agent` on a host.
fn start_agent(place: &Place, name: &str, namespace: &Namespace, interface: &str, config: &str) -> Process {
    let path = |extension: &str| place.0.join(format!("agent-{name}.{extension}"));
    std::fs::write(path("toml"), format!("[metrics]\nenabled = false\n{config}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdover"));
    command.args(["agent", "run", "--foreground", "--interface", interface]);
    command.arg("--config").arg(path("toml")).arg("--socket").arg(path("sock"));
    let mut agent = Process::start(namespace, command, LogTo::File(path("log"))).unwrap();
    agent.wait_until_ok(PATIENCE, || answers(&path("sock"))).unwrap_or_else(|error| panic!("not up: {error}"));
    agent
}

/// The port of the connection that is to fail fast, by the rules.
const FAILS_FAST: u16 = 7007;

/// The other connections have the agent's hold beside the daemon's.
const RULES: &str = r#"
[[flow]]
port = 7007
fail_fast = "8 s"

[[flow]]
remote = ["2001:20::/28", "198.18.0.0/15"]
hold = "8 h"
advertise = true
"#;

/// With `tcp_retries2` = 5 Linux gives up data after some 16 s.
const ABSENCE: Duration = Duration::from_secs(22);

/// The next test of the path is ten seconds away at most; TCP's next retransmission may be 25.
const RESUMES_WITHIN: Duration = Duration::from_secs(14);

/// A connection on which one end, or both, have written one byte in the dark.
struct Quiet {
    ends: [TcpStream; 2],
    writes: [bool; 2],
}

impl Quiet {
    fn write(&mut self) {
        for (end, _) in self.ends.iter_mut().zip(self.writes).filter(|(_, writes)| *writes) {
            end.write_all(b"?").unwrap();
        }
    }

    /// Waits for the written data; then both ends write. Returns when all of it has arrived.
    fn read(mut self) -> Instant {
        let [client, server] = &mut self.ends;
        for (end, _) in [server, client].into_iter().zip(self.writes).filter(|(_, writes)| *writes) {
            expect(end, b"?");
        }
        let arrived_at = Instant::now();
        let [client, server] = &mut self.ends;
        swap(client, server);
        arrived_at
    }
}

// Claim: With `holdover hip` and `holdover agent` on both hosts, four transfers and twelve connections with a byte in the dark, in IPv6 and
// IPv4, outlive a cut of 22 s (`tcp_retries2` = 5): the streams are exact, and each has data within 14 s of the path's return. A rule of the
// agent that fails fast ends its connection meanwhile.
fn many_connections_resume() {
    let (place, network) = (Place::new("with-agent"), Network::new(None));
    let hosts = talking(&place, &network, "udp");
    let [mobile, server] = &hosts;
    let _agents = [
        start_agent(&place, "mobile", &network.mobile, "wifi", RULES),
        start_agent(&place, "server", &network.server, "wan", RULES),
    ];
    let (hit, lsi) = (IpAddr::from(server.hit()), IpAddr::from(mobile.lsi_of("server")));
    let any: IpAddr = "::".parse().unwrap();
    let ways = [(Way::ToMobile, hit), (Way::FromMobile, hit), (Way::ToMobile, lsi), (Way::FromMobile, lsi)];
    let transfers = ways.map(|(way, to)| Transfer::between(way, &network.mobile, to, &network.server, (any, 0)));
    let writes = [[true, true], [true, false], [false, true]];
    let mut quiet: Vec<Quiet> = (0..12)
        .map(|number| {
            let ends = connected(&network.mobile, [hit, lsi][number % 2], &network.server);
            Quiet { ends, writes: writes[number % 3] }
        })
        .collect();
    let [mut impatient, _peer_of_it] = connected_to(&network.mobile, hit, &network.server, FAILS_FAST);
    transfers.iter().for_each(|transfer| transfer.wait_for_more(1_000_000));
    network.cut(true);
    let cut_at = Instant::now();
    quiet.iter_mut().for_each(Quiet::write);
    impatient.write_all(b"?").unwrap();
    let ended = impatient.read(&mut [0]).unwrap_err();
    let ended = (ended.kind(), cut_at.elapsed());
    std::thread::sleep(ABSENCE.saturating_sub(cut_at.elapsed()));
    let back_at = Instant::now();
    network.cut(false);
    let readers: Vec<_> = quiet.into_iter().map(|quiet| std::thread::spawn(move || quiet.read())).collect();
    let resumed: Vec<Duration> =
        readers.into_iter().map(|reader| reader.join().unwrap().saturating_duration_since(back_at)).collect();
    transfers.iter().for_each(|transfer| transfer.wait_for_more(100_000));
    let bulk: Vec<Duration> = transfers
        .into_iter()
        .map(|transfer| first_after(&transfer.end(), back_at).saturating_duration_since(back_at))
        .collect();
    eprintln!("{ended:?} fast; after the path was back: quiet {resumed:?}, transfers {bulk:?}");
    assert!(ended.0 == ErrorKind::TimedOut && ended.1 < ABSENCE, "{ended:?}");
    let latest = resumed.into_iter().chain(bulk).max();
    assert!(latest < Some(RESUMES_WITHIN), "{latest:?}");
}
