//! The page of `holdover gateway demo --page`.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use holdover_report::{Document, Table};
use holdover_testbed::gateway::Cut;
use holdover_testbed::kernel_release;
use holdover_transfers::gateway::{Incident, Outcome, ROUND_TRIP};

use super::{Pair, pairs};

/// Whether a page can be written to this file. It is left as it is; a new one is not left behind.
pub(super) fn check(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        // `create_new` does not follow a symbolic link, so only a file made here is removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create_new(path)?;
            std::fs::remove_file(path)
        }
        opened => opened.map(drop),
    }
}

/// Writes the page.
pub(super) fn write(path: &Path, cluster: Option<u8>, outcomes: &[Outcome]) -> io::Result<()> {
    std::fs::write(path, page(cluster, outcomes))
}

fn page(cluster: Option<u8>, outcomes: &[Outcome]) -> String {
    let mut page = Document::new("A mobile host goes away: TCP without and with the gateway");
    let gateways = match cluster {
        Some(count) => format!("{count} gateways that agree in etcd"),
        None => "one gateway, and a second one for the handoff".to_owned(),
    };
    page.lead(&format!(
        "Transfers of 8 MB at 4 MB/s between a fixed host and a mobile host, {} ms of round trip, with and without `holdover gateway` on the \
         router: {gateways}. The hosts are unmodified.",
        ROUND_TRIP.as_millis(),
    ));
    page.section("results", "Results");
    let heading = ["outage", "transfer", "first data, plain", "with gateway", "total, plain", "with gateway"];
    let rows = pairs(cluster, outcomes).map(|pair| row(&pair).to_vec()).collect();
    page.table(&Table { heading: heading.map(str::to_owned).to_vec(), rows });
    page.note(
        "First data: from the return of the link to the first new data at the receiver. Total: from the first byte to the last one. A mobile \
         host that comes to another gateway sends a datagram there at once, as hosts do when they attach (DHCP, DNS).",
    );
    page.section("outages", "Outages");
    let outages = pairs(cluster, outcomes).filter(|pair| !pair.is_upload);
    let rows = outages.map(|pair| vec![pair.case.name.to_owned(), what_happens(&pair)]).collect();
    page.table_of_text(&Table { heading: ["outage", "what happens"].map(str::to_owned).to_vec(), rows });
    page.section("made", "How this was made");
    page.paragraph(&format!(
        "All hosts are network namespaces of this machine (Linux {}), made for this run and removed after it. The senders use CUBIC, or what \
         the kernel has. The gateway is the real daemon with its default configuration. The four transfers of an outage run at the same time.",
        kernel_release(),
    ));
    let command: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    page.to_html(&format!("Holdover {}: `{}`", env!("CARGO_PKG_VERSION"), command.join(" ").replace('`', "")))
}

fn row(pair: &Pair<'_>) -> [String; 6] {
    let ms = |outcome: &Outcome| format!("{:.0} ms", outcome.first_data_s * 1000.0);
    let total = |outcome: &Outcome| format!("{:.2} s", outcome.total_s);
    let Pair { case, plain, gateway, .. } = pair;
    [case.name.to_owned(), pair.direction().to_owned(), ms(plain), ms(gateway), total(plain), total(gateway)]
}

fn what_happens(pair: &Pair<'_>) -> String {
    let cut = match pair.case.cut {
        Cut::Silent => "packets are lost without any sign at an interface",
        Cut::Carrier => "the router's interface has no carrier",
    };
    let incident = match pair.case.incident {
        Incident::None => "",
        Incident::Killed => " In the middle of it the daemon is killed (`kill -9`) and started again.",
        Incident::Handoff => " The mobile host comes back at another gateway.",
        Incident::StoreAway => " The etcd of the cluster is stopped before, and started again after it.",
        Incident::TakenOver => {
            " The daemon is killed for good, the routes change to another gateway, and the mobile host comes back there."
        }
    };
    format!("For {:.1} s {cut}.{incident}", pair.case.cut_ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use holdover_transfers::gateway::{CASES, CLUSTER_CASES, Case, Way};

    use super::*;

    fn outcomes(cases: &[Case]) -> Vec<Outcome> {
        let ways = [(false, false), (false, true), (true, false), (true, true)];
        let all = cases.iter().enumerate().flat_map(|(number, &case)| ways.map(|way| (number, case, way)));
        all.map(|(number, case, (is_upload, has_gateway))| Outcome {
            case,
            way: Way { is_upload, has_gateway },
            first_data_s: number as f64 + if has_gateway { 0.011 } else { 0.222 },
            total_s: number as f64 + 5.0,
        })
        .collect()
    }

    // Claim: The page of `gateway demo` has every outage and every figure; a file that cannot be written is refused at the start,
    // and its content stays until then.
    // Tests: `page::a_file_that_cannot_be_written_is_refused_and_a_check_leaves_none`
    #[test]
    fn the_page_has_every_outage_once_and_every_figure() {
        for (cluster, cases) in [(None, &CASES[..]), (Some(3), &CLUSTER_CASES[..])] {
            let page = page(cluster, &outcomes(cases));
            for (number, case) in cases.iter().enumerate() {
                // Both directions, and the description of the case.
                assert_eq!(page.matches(&format!("<th scope=\"row\">{}</th>", case.name)).count(), 3, "{}", case.name);
                for figure in [number * 1000 + 222, number * 1000 + 11] {
                    assert_eq!(page.matches(&format!("<td>{figure} ms</td>")).count(), 2, "{figure}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_and_a_check_leaves_none() {
        let directory = std::env::temp_dir().join(format!("holdover-demo-page-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("page.html");
        check(&file).unwrap();
        assert!(!file.exists());
        std::fs::write(&file, "older").unwrap();
        check(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "older");
        write(&file, None, &outcomes(&CASES)).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().ends_with("</html>\n"));
        assert!(check(&directory.join("nowhere/page.html")).is_err());
        assert!(check(&directory).is_err());
        // A link to a file that does not exist: nothing is made where it points to.
        let link = directory.join("link.html");
        std::os::unix::fs::symlink(directory.join("target.html"), &link).unwrap();
        assert!(check(&link).is_err());
        assert!(link.is_symlink() && !directory.join("target.html").exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
