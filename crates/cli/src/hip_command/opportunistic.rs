//! `holdover hip peer add NAME --opportunistic ADDRESS`: a peer whose HIT is that of whatever host answers at an address.

use std::net::IpAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use holdover_hip::identity::Hit;
use holdover_hipd::control::{self, Request};
use holdover_hipd::files::{Via, check_address};
use holdover_hipd::status::PeerStatus;

use super::{Failure, wrong};

/// How often the daemon is asked, and how many times: 20 s in all, as long as an I1 is repeated on a bad path.
const EVERY: Duration = Duration::from_millis(100);
const MOST: usize = 200;

/// What is printed beside the peer.
pub(super) const WARNING: &str = "Nothing has proved that this is the host that was meant: compare the HIT with that which `holdover hip id` prints there.\n";

/// Has the daemon call an address, and waits for the identity of the host that answers.
pub(super) fn call(socket: &Path, address: IpAddr, via: Via) -> Result<Hit, Failure> {
    check_address(address).map_err(|error| wrong(&error))?;
    let found = || -> Result<Option<PeerStatus>, Failure> {
        let is_it =
            |it: &PeerStatus| it.addresses.contains(&address) && matches!(it.state.as_str(), "ESTABLISHED" | "R2-SENT");
        Ok(control::status(socket)?.peers.into_iter().find(is_it))
    };
    if let Some(known) = found()?.and_then(|peer| peer.name) {
        return Err(Failure { text: format!("at {address} there is {known}, which is a peer already"), status: 1 });
    }
    control::ask(socket, &Request::Call { address, via })?;
    for _ in 0..MOST {
        if let Some(hit) = found()?.and_then(|peer| peer.hit.parse().ok()) {
            return Ok(Hit(hit));
        }
        sleep(EVERY);
    }
    let text = format!(
        "no host has answered at {address}: opportunistic mode has to be enabled there, too ([opportunistic] in hip.toml), and this host be a peer there, or unknown ones be \
         accepted (holdover hip up --accept-unknown)"
    );
    Err(Failure { text, status: 1 })
}
