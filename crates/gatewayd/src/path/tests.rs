//! The loaded programs, and the number of instructions that the verifier processes.

use super::*;

/// Rules that exercise every part of the programs.
fn flow_place() -> FlowPlace {
    let text = "[[flow]]\nfixed_port = 443\nmode = \"split\"\n[[flow]]\nmobile_port = 7\nmode = \"freeze\"\n";
    FlowPlace { modes: FlowModes::new(&toml::from_str(text).unwrap()), links: vec![LinkState::default(); 2] }
}

#[test]
fn rules_are_in_their_order() {
    let flows = flow_place();
    let place = Place { flows: Some(&flows), ..Place::nowhere() };
    let verdicts: Vec<u32> = flow_rules(&place).iter().map(|rule| rule.verdict).collect();
    // Both rules match; the first one diverts, splits and has the first link.
    assert_eq!(verdicts, [0x8 | 0x10 | 0x20 | 1, 0x8 | 2]);
}

#[test]
fn tables_and_modes_are_part_of_the_layout() {
    let place = Place::nowhere();
    let layout = place.layout();
    assert_eq!(layout, Place { index: 7, ..place }.layout());
    assert!(layout.len() == 16 && layout.bytes().all(|byte| byte.is_ascii_hexdigit()), "{layout}");
    for other in [Place { modes: "freeze", ..place }, Place { most_mobiles: 2, ..place }] {
        assert_ne!(layout, other.layout());
    }
}

/// Each start of the gateway waits for the verifier. Linux 6.18 processes some 30,000 instructions of `egress` with the thesis' flag.
#[test]
fn programs_are_verified_soon() {
    let flows = flow_place();
    for sign in [None, Some(WarningSign::Window), Some(WarningSign::IpFlag)] {
        let thesis = sign.map(|sign| ThesisPlace { sign, networks: Vec::new() });
        let flows = sign.is_some().then_some(&flows);
        let place = Place { thesis: thesis.as_ref(), flows, ..Place::nowhere() };
        let path = match KernelPath::load(&place, &[], None) {
            Ok(path) => path,
            Err(error) => return holdover_testbed::harness::skip(error),
        };
        for name in PROGRAMS {
            let program: &aya::programs::SchedClassifier = path.object.program(name).unwrap();
            let looked_at = program.info().unwrap().verified_instruction_count();
            eprintln!("{name}, {sign:?}: {looked_at:?}");
            assert!(looked_at.is_none_or(|count| count < 50_000), "{name}, {sign:?}: {looked_at:?}");
        }
    }
}
