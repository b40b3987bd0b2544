//! A real agent on a mobile host and a real gateway in front of it, which work together.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_gatewayd::control::{Request, Response, ask};
use holdover_gatewayd::demo::{Cut, Process, World};
use holdover_gatewayd::status::MobileLine;

use crate::kernel::is_possible;
use crate::support::Place;

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holdover() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdover"))
}

fn gateway(directory: &Path) -> Command {
    let mut command = holdover();
    command.args(["gateway", "run", "--interface", "mob0", "--foreground", "--config"]);
    command.arg(directory.join("gateway.toml")).arg("--socket").arg(directory.join("gateway.sock"));
    command.stderr(Stdio::null());
    command
}

fn mobile(gateway: &Process, world: &World) -> Option<MobileLine> {
    let Ok(Response::Mobiles { mobiles }) = ask(&gateway.socket(), &Request::Mobiles) else { return None };
    mobiles.into_iter().find(|mobile| mobile.address == world.mobile_address(0))
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

/// The agent hears of the cut by command, as from a modem or a timetable, and has the gateway keep what comes before the link is cut: no
/// packet is lost, and the transfer goes on without a retransmission timeout.
// Claim: The real agent tells the real gateway of a cut that is foreseen and of its end, twice; nothing is lost.
#[test]
fn an_agent_tells_the_gateway_of_a_cut_and_of_its_end() {
    if !is_possible() {
        return;
    }
    let place = Place::new("gateway-and-agent");
    let key = place.path("key");
    fs::write(&key, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n").unwrap();
    let world = World::with_round_trip(1, holdover_base::Duration::from_millis(40)).unwrap();
    let address = world.mobile_address(0);
    let sections = format!(
        "[registration]\nlisten = \"10.2.0.1:4786\"\n[[registration.hosts]]\nkey_file = {key:?}\naddresses = [\"{address}\"]\n"
    );
    let gateway = Process::start(world.router(), place.path("gateway"), &sections, gateway).unwrap();
    let config = place.path("agent.toml");
    let text = format!(
        "[gateway]\ninterface = \"eth0\"\naddress = \"10.2.0.1:4786\"\nkey_file = {key:?}\n[metrics]\nenabled = false\n"
    );
    fs::write(&config, text).unwrap();
    let socket = place.path("agent.sock");
    let mut command = holdover();
    command.args(["agent", "run", "--interface", "eth0", "--foreground", "--config"]).arg(&config);
    command.arg("--socket").arg(&socket).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _agent = Agent(world.mobile(0).enter(move || command.spawn()).unwrap().unwrap());
    let signal = |words: &[&str]| {
        let mut command = holdover();
        command.args(["agent", "signal"]).args(words).arg("--socket").arg(&socket).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let status = || match ask(&gateway.socket(), &Request::Status) {
        Ok(Response::Status(status)) => *status,
        other => panic!("{other:?}"),
    };
    wait_for("the first report", || (status().reports.registered > 0).then_some(()));

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
        signal(&["fading", "--lead", "300ms"]);
        wait_for("a host that fades", || mobile(&gateway, &world).filter(|line| line.standing == "fading"));
        let away = wait_for("a host that is away", || mobile(&gateway, &world).filter(|line| line.standing == "away"));
        assert_eq!(away.away_by, ["registration"], "{away:?}");
        world.set_cut(Cut::Silent, true).unwrap();
        let words = format!("while it was away, {round}");
        from.write_all(words.as_bytes()).unwrap();
        wait_for("a packet that waits", || mobile(&gateway, &world).filter(|line| line.waiting > 0));
        sleep(Duration::from_millis(500));
        world.set_cut(Cut::Silent, false).unwrap();
        signal(&["recovered"]);
        expect(words.as_bytes());
        wait_for("a host that is present", || mobile(&gateway, &world).filter(|line| line.standing == "present"));
    }
    let reports = status().reports;
    assert_eq!((reports.forged, reports.refused), (0, 0), "{reports:?}");
    assert!(reports.registered >= 5, "{reports:?}");
}
