//! A real agent on a mobile host and a real gateway in front of it, which work together.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::{self, Request, Response, ask};
use holdover_gatewayd::status::{MobileLine, Status};
use holdover_host::Process;
use holdover_host::process::LogTo;
use holdover_testbed::gateway::{Cut, GatewayProcess, Transfer, World};

use crate::Test;
use crate::kernel::is_possible;
use crate::support::Place;

pub(crate) const TESTS: &[Test] = &[
    ("both_hold_acks_of_bulk_transfers_back", both_hold_acks_of_bulk_transfers_back),
    ("an_agent_tells_the_gateway_of_a_cut_and_of_its_end", an_agent_tells_the_gateway_of_a_cut_and_of_its_end),
];

/// A mobile host behind a gateway, and the agent on it, which reports to that gateway.
struct Pair {
    // The agent ends before the gateway and the hosts.
    agent: Option<Process>,
    gateway: GatewayProcess,
    world: World,
    place: Place,
}

impl Pair {
    fn start(name: &str, has_agent: bool) -> Self {
        let place = Place::new(name);
        let key = place.path("key");
        fs::write(&key, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
        let world = World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap();
        let address = world.mobile_address(0);
        let sections = format!(
            "[registration]\nlisten = \"10.2.0.1:4786\"\n[[registration.hosts]]\nkey_file = {key:?}\naddresses = [\"{address}\"]\n"
        );
        let gateway = GatewayProcess::start(world.router(), place.path("gateway"), &sections, gateway).unwrap();
        let mut pair = Self { agent: None, gateway, world, place };
        if has_agent {
            pair.start_agent(&key);
        }
        pair
    }

    fn start_agent(&mut self, key: &Path) {
        let config = self.place.path("agent.toml");
        let text = format!(
            "[gateway]\ninterface = \"eth0\"\naddress = \"10.2.0.1:4786\"\nkey_file = {key:?}\n[metrics]\nenabled = false\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = holdover();
        command.args(["agent", "run", "--interface", "eth0", "--foreground", "--config"]).arg(&config);
        command.arg("--socket").arg(self.agent_socket());
        let log = LogTo::File(self.place.path("agent.log"));
        let mut agent = Process::start(self.world.mobile(0), command, log).unwrap();
        let reported = agent.wait_until(Duration::from_secs(30), || self.status().reports.registered > 0);
        reported.unwrap_or_else(|error| panic!("the first report of the agent: {error}"));
        self.agent = Some(agent);
    }

    fn agent_socket(&self) -> PathBuf {
        self.place.path("agent.sock")
    }

    /// Runs a command of the agent.
    fn agent(&self, words: &[&str]) -> String {
        let mut command = holdover();
        command.arg("agent").args(words).arg("--socket").arg(self.agent_socket()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Packets in which the agent has changed or withheld an ACK.
    fn held_by_agent(&self) -> u64 {
        let status: serde_json::Value = serde_json::from_str(&self.agent(&["status", "--json"])).unwrap();
        let count = |name: &str| status["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {status}"));
        count("rewritten") + count("held")
    }

    fn status(&self) -> Status {
        control::status(&self.gateway.socket()).unwrap()
    }

    fn mobile(&self) -> Option<MobileLine> {
        let Ok(Response::Mobiles { mobiles }) = ask(&self.gateway.socket(), &Request::Mobiles) else { return None };
        mobiles.into_iter().find(|mobile| mobile.address == self.world.mobile_address(0))
    }

    fn becomes(&self, standing: &str) -> MobileLine {
        wait_for(standing, || self.mobile().filter(|line| line.standing == standing))
    }
}

fn holdover() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdover"))
}

fn gateway(directory: &Path) -> Command {
    let mut command = holdover();
    command.args(["gateway", "run", "--interface", "mob0", "--foreground", "--config"]);
    command.arg(directory.join("gateway.toml")).arg("--socket").arg(directory.join("gateway.sock"));
    command
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "not seen: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A command reports the cut to the agent, as a modem or a timetable would, and the agent makes the gateway buffer packets before the link
/// is cut: no packet is lost, and the transfer continues without a retransmission timeout.
// Claim: The real agent tells the real gateway of a cut that is foreseen and of its end, twice; nothing is lost.
fn an_agent_tells_the_gateway_of_a_cut_and_of_its_end() {
    if !is_possible() {
        return;
    }
    let pair = Pair::start("gateway-and-agent", true);
    let world = &pair.world;
    let listener =
        world.fixed().enter(|| TcpListener::bind(SocketAddr::new(world.fixed_address(), 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let mut into = world.mobile(0).enter(move || TcpStream::connect(to)).unwrap().unwrap();
    let (mut from, _) = listener.accept().unwrap();
    let mut expect = |wanted: &[u8]| {
        let mut received = vec![0; wanted.len()];
        into.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        into.read_exact(&mut received).unwrap();
        assert_eq!(received, wanted);
    };
    from.write_all(b"before").unwrap();
    expect(b"before");
    for round in 0..2 {
        pair.agent(&["signal", "fading", "--lead", "300ms"]);
        pair.becomes("fading");
        let away = pair.becomes("away");
        assert_eq!(away.away_by, ["registration"], "{away:?}");
        world.set_cut(Cut::Silent, true).unwrap();
        let words = format!("while it was away, {round}");
        from.write_all(words.as_bytes()).unwrap();
        wait_for("a packet that waits", || pair.mobile().filter(|line| line.waiting > 0));
        sleep(Duration::from_millis(500));
        world.set_cut(Cut::Silent, false).unwrap();
        pair.agent(&["signal", "recovered"]);
        expect(words.as_bytes());
        pair.becomes("present");
    }
    let reports = pair.status().reports;
    assert_eq!((reports.forged, reports.refused), (0, 0), "{reports:?}");
    assert!(reports.registered >= 5, "{reports:?}");
}

/// The cuts of a run: their kind, and their length. The mobile host sees the first kind, the gateway the second one; the other one finds
/// silence. The agent foresees the third.
const CUTS: [(Kind, Duration); 6] = [
    (Kind::Link(Cut::Silent), Duration::from_secs(4)),
    (Kind::Link(Cut::Carrier), Duration::from_secs(4)),
    (Kind::Foreseen, Duration::from_secs(4)),
    (Kind::Link(Cut::Silent), Duration::from_millis(700)),
    (Kind::Link(Cut::Carrier), Duration::from_millis(700)),
    (Kind::Link(Cut::Silent), Duration::from_secs(4)),
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Link(Cut),
    Foreseen,
}

/// Later than this after a return is too late with the gateway alone. After 4 s senders that nothing wakes retransmit up to 4 s after the return.
const SOON: Duration = Duration::from_secs(1);

/// Later than with the gateway alone by this much is too late.
const LATER: Duration = Duration::from_millis(750);

/// A download and an upload at once over [`CUTS`], byte-exact: how long after each return the first new data of each arrive.
fn over_cuts(pair: &Pair) -> Vec<[Duration; 2]> {
    let transfers = [false, true].map(|is_upload| Transfer::start(&pair.world, 0, is_upload).unwrap());
    let mut resumed = Vec::new();
    for (kind, length) in CUTS {
        transfers.iter().for_each(|transfer| transfer.await_more(3_000_000).unwrap());
        let cut = if let Kind::Link(cut) = kind { cut } else { Cut::Silent };
        let is_foreseen = matches!(kind, Kind::Foreseen) && pair.agent.is_some();
        if is_foreseen {
            pair.agent(&["signal", "fading", "--lead", "200ms"]);
            pair.becomes("away");
        }
        pair.world.set_cut(cut, true).unwrap();
        pair.becomes("away");
        sleep(length);
        let before = transfers.each_ref().map(Transfer::received);
        pair.world.set_cut(cut, false).unwrap();
        let began = Instant::now();
        if is_foreseen {
            pair.agent(&["signal", "recovered"]);
        }
        let mut after = [None; 2];
        while after.iter().any(Option::is_none) {
            for (number, after) in after.iter_mut().enumerate().filter(|(_, after)| after.is_none()) {
                *after = (transfers[number].received() > before[number]).then(|| began.elapsed());
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{kind:?}: stuck, {after:?}");
            sleep(Duration::from_micros(500));
        }
        resumed.push(after.map(Option::unwrap));
        pair.becomes("present");
    }
    transfers.into_iter().for_each(|transfer| _ = transfer.ends_exact().unwrap());
    resumed
}

// Claim: Agent and gateway on the path of one mobile host, which both hold ACKs of a bulk download and a bulk upload: both are byte-exact over
// six cuts of three kinds, after each cut the first new data come within a second with the gateway alone, and at most 0.75 s later with both.
fn both_hold_acks_of_bulk_transfers_back() {
    if !is_possible() {
        return;
    }
    let alone = Pair::start("gateway-alone", false);
    let expected = over_cuts(&alone);
    drop(alone);
    let pair = Pair::start("gateway-and-agent-bulk", true);
    let both = over_cuts(&pair);
    for ((cut, alone), both) in CUTS.iter().zip(&expected).zip(&both) {
        eprintln!(
            "{cut:?}: first data of download and upload after {alone:?} with the gateway alone, {both:?} with both"
        );
    }
    let path = pair.status().path;
    assert!(path.lowered + path.withheld > 100, "{path:?}");
    assert!(pair.held_by_agent() > 100);
    for ((cut, alone), both) in CUTS.iter().zip(expected).zip(both) {
        assert!(alone.into_iter().all(|alone| alone < SOON), "{cut:?}: with the gateway alone {alone:?}");
        let is_late = alone.into_iter().zip(both).any(|(alone, both)| both > alone + LATER);
        assert!(!is_late, "{cut:?}: {both:?}, with the gateway alone {alone:?}");
    }
}
