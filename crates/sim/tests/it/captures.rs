//! Messages between mobile hosts, base stations and gateways, parsed by an independent program.

use std::io::{self, Write as _};
use std::process::Command;

use holdover_base::Instant;
use holdover_sim::{Attachment, Frame, Movement, Observer, Place, Registration, Repeat, Transit, World};
use holdover_wire::pcapng::{Interface, InterfaceId, Record, Writer};

use crate::support::*;

/// Captures every packet that leaves a node.
struct Capture {
    writer: Writer<Vec<u8>>,
    interface: InterfaceId,
    packets: usize,
}

impl Observer for Capture {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        if place.transit == Transit::Out {
            self.writer.write(&Record::new(at, self.interface), frame.packet()).expect("writing to memory");
            self.packets += 1;
        }
    }
}

#[test]
fn tshark_understands_beacons_and_registrations() {
    let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 50.0], 5.0, 1_000) };
    let registration = Registration { tell_old_base: true, ..Registration::through(GATEWAY) };
    let mut config = cellular(Movement::Path(path), Attachment::Registration(registration));
    config.flows = vec![flow("web", MOBILE, FIXED, exchanges(10, secs(1)))];
    config.time_limit = Instant::from_secs(12);
    let mut writer = Writer::new(Vec::new(), "holdover test").unwrap();
    let interface = writer.add_interface(&Interface::new("all")).unwrap();
    let mut capture = Capture { writer, interface, packets: 0 };
    World::new(config).unwrap().run(&mut capture);

    let file = std::env::temp_dir().join(format!("holdover-sim-{}.pcapng", std::process::id()));
    std::fs::write(&file, capture.writer.into_inner()).unwrap();
    let fields =
        ["_ws.col.Protocol", "_ws.malformed", "_ws.expert.message", "icmp.type", "mip.type", "icmp.checksum.status"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=|"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.output();
    std::fs::remove_file(&file).unwrap();
    let Ok(output) = output else {
        writeln!(io::stderr(), "tshark_understands_beacons_and_registrations: skipped, tshark is not installed")
            .unwrap();
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    assert_eq!(lines.len(), capture.packets);
    for line in &lines {
        assert_eq!(line[1], "", "malformed: {line:?}");
        assert!(line[3].is_empty() || line[5] == "1", "a bad ICMP checksum: {line:?}");
    }
    let count = |field: usize, value: &str| lines.iter().filter(|line| line[field] == value).count();
    assert!(count(3, "9") > 20, "agent advertisements");
    assert!(count(4, "1") >= 4 && count(4, "3") >= 4, "requests and replies, each on two hops:\n{text}");
    assert!(count(4, "7") >= 2, "revocations");
}
