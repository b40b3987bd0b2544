//! The parser and the runner neither panic nor hang on any text: arbitrary text, and scripts with parts changed, removed and repeated.

use holdover_packetdrill::{RunOptions, Script, default_defines, run};
use proptest::prelude::*;

use crate::scripts::text;

/// Parses a text, and runs it if it is a valid script.
fn survives(text: &str) {
    let options = RunOptions::default();
    if let Ok(script) = Script::parse(text, &default_defines(options.ip_version)) {
        let report = run(&script, &options, &mut |_| Some(self::text("defaults.sh")));
        assert!(report.differences.len() <= 40, "{}", report.differences.len());
    }
}

/// Pieces of scripts that change the meaning of their context.
const PIECES: &[&str] = &[
    "<",
    ">",
    "...",
    "4294967295",
    "-1",
    "0xffffffffffffffff",
    "99999999999999999999",
    "`",
    "%{ assert 9**99 }%",
    "\"",
    "+",
    "*",
    "~",
    "[",
    "{",
    "(",
    "0:0(0)",
    "win 0",
    "1:65536(65535)",
    "FO",
    "sack 5:1",
    "TS val 0 ecr 4294967295",
    "wscale 255",
    "mss 0",
    "mss 1",
    "\n",
    "S",
    "R.",
    "close(4)",
    "86400",
    "listen(3, 1) = 0",
    "= -1",
    "MSG_MORE",
    "write(4, ..., 999999999) = 1",
    "%{ tcpi_rtt = 1 / 0 }%",
    "é",
    "\0",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    // Claim: Arbitrary text, scripts with parts changed, lost and repeated, and numbers of any size cause no panic and no hang.
    // Tests: `hostile::changed_scripts_are_survived`, `hostile::numbers_of_any_size_are_survived`
    #[test]
    fn arbitrary_text_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn changed_scripts_are_survived(
        name in prop::sample::select(vec!["server.pkt", "client.pkt", "errors.pkt"]),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..30, prop::sample::select(PIECES.to_vec())), 1..6),
    ) {
        let mut letters: Vec<char> = text(name).chars().collect();
        for (at, lost, piece) in changes {
            let at = at.index(letters.len());
            let end = (at + lost).min(letters.len());
            letters.splice(at..end, piece.chars());
        }
        survives(&letters.into_iter().collect::<String>());
    }

    #[test]
    fn numbers_of_any_size_are_survived(number in any::<u64>(), which in any::<prop::sample::Index>()) {
        let text = text("server.pkt");
        let numbers: Vec<usize> = text.char_indices().filter(|(_, letter)| letter.is_ascii_digit()).map(|(at, _)| at).collect();
        let at = numbers[which.index(numbers.len())];
        survives(&format!("{}{number}{}", &text[..at], &text[at + 1..]));
    }
}
