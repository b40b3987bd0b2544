//! `holdover hip peer add NAME --opportunistic ADDRESS`: a peer whose HIT is that of whatever host answers at an address.

use std::net::IpAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use holdover_hip::identity::Hit;
use holdover_hipd::control::{self, ClientError, Request, Response};
use holdover_hipd::files::{PeerError, Peers, Via, check_address};

use super::{Failure, wrong};

/// How often the daemon is asked. It ends the call.
const EVERY: Duration = Duration::from_millis(100);

/// What is printed beside the peer.
pub(super) const WARNING: &str = "Nothing has proved that this is the host that was meant: compare the HIT with that which `holdover hip id` prints there.\n";

/// A call of the daemon. With it ends its association, unless the host is in the file of peers and the daemon has read that.
pub(super) struct Call<'a> {
    socket: &'a Path,
    number: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Without this the daemon ends it some seconds later.
        let _ = control::ask(self.socket, &Request::HangUp { number: self.number });
    }
}

/// Has the daemon call an address, and waits for the identity of the host that answers.
pub(super) fn call<'a>(
    (directory, socket): (&Path, &'a Path),
    name: &str,
    address: IpAddr,
    via: Via,
) -> Result<(Call<'a>, Hit), Failure> {
    check_address(address).map_err(|error| wrong(&error))?;
    if let Some(taken) = Peers::read(directory)?.iter().find(|peer| peer.name == name) {
        return Err(wrong(&PeerError::NameTaken { name: name.to_owned(), hit: taken.hit() }));
    }
    let Response::Calling { number } = control::ask(socket, &Request::Call { address, via })? else {
        return Err(ClientError::unexpected::<Response>().into());
    };
    let call = Call { socket, number };
    loop {
        match control::ask(socket, &Request::CallState { number })? {
            Response::Open => sleep(EVERY),
            Response::Answered { hit } => {
                let hit = Hit(hit);
                return match Peers::read(directory)?.iter().find(|peer| peer.hit() == hit) {
                    Some(known) => {
                        let text = format!("at {address} there is {}, which is a peer already", known.name);
                        Err(Failure { text, status: 1 })
                    }
                    None => Ok((call, hit)),
                };
            }
            Response::Ended => {
                let text = format!(
                    "no host has answered at {address}: opportunistic mode has to be enabled there, too ([opportunistic] in hip.toml), and this host be a peer there, or unknown ones be \
                     accepted (holdover hip up --accept-unknown)"
                );
                return Err(Failure { text, status: 1 });
            }
            _ => return Err(ClientError::unexpected::<Response>().into()),
        }
    }
}
