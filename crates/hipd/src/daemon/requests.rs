//! Requests on the control socket.

use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::host::CommandError;
use holdover_hip::identity::Hit;
use holdover_host::control_line;

use super::Daemon;
use crate::control::{Request, Response};
use crate::core::{CallState, Core, InvitationState, MAX_OPEN};
use crate::files::Via;
use crate::invitation::Secret;

/// The longest time for which an invitation may be open.
const MAX_VALID_S: u64 = 24 * 3600;

impl Daemon {
    pub(super) fn serve_control(&mut self, now: Instant) {
        for (caller, question) in self.control.handle_ready(now) {
            let answer = match control_line::parse(&question) {
                Ok(request) => self.answer(now, request),
                Err(error) => Response::from(error),
            };
            self.control.answer(now, caller, &control_line::write(&answer), false);
        }
    }

    fn answer(&mut self, now: Instant, request: Request) -> Response {
        match request {
            Request::Status => Response::Status(Box::new(self.status(now))),
            Request::Reload => match self.read_files(now, false) {
                Ok(()) => Response::Done,
                Err(error) => refused(&error),
            },
            Request::Down => {
                self.begin_to_end(now);
                Response::Done
            }
            Request::Join { hit, secret, own } => self.join(now, Hit(hit), &secret, own),
            Request::Call { address, via } => call(self.identities.own_mut(), now, address, via),
            Request::CallState { number } => match self.identities.own_mut().call_state(now, number) {
                CallState::Open => Response::Open,
                CallState::Answered(peer) => Response::Answered { hit: peer.0 },
                CallState::Ended => Response::Ended,
            },
            Request::HangUp { number } => {
                self.identities.own_mut().hang_up(now, number);
                Response::Done
            }
            Request::Invite { valid_s } => invite(self.identities.own_mut(), now, valid_s),
            Request::Invitation { number } => invitation(self.identities.own_mut(), now, number),
            Request::Withdraw { number } => {
                self.identities.own_mut().withdraw(now, number);
                Response::Done
            }
        }
    }

    /// Reads the files again, and accepts the invitation of this peer.
    fn join(&mut self, now: Instant, peer: Hit, secret: &Secret, own: String) -> Response {
        if let Err(error) = self.read_files(now, false) {
            return refused(&error);
        }
        match self.identities.own_mut().present(now, peer, secret.0, own.into()) {
            Ok(()) => Response::Done,
            Err(error) => refused(&error),
        }
    }
}

fn call(core: &mut Core, now: Instant, address: IpAddr, via: Via) -> Response {
    match core.call(now, address, via) {
        Ok(number) => Response::Calling { number },
        Err(CommandError::Opportunistic) => Response::Refused {
            message:
                "opportunistic mode is off, or 64 calls are open: [opportunistic] enabled = true in hip.toml, and \
                      systemctl reload holdover-hip"
                    .to_owned(),
        },
        Err(CommandError::NoAddress { .. }) => {
            Response::Refused { message: format!("this host has no address from which {address} can be called") }
        }
        Err(error) => refused(&error),
    }
}

fn invite(core: &mut Core, now: Instant, valid_s: u64) -> Response {
    let secret = Secret::random();
    let valid = Duration::from_secs(valid_s.clamp(1, MAX_VALID_S));
    match core.invite(now, secret.0, valid) {
        Some(number) => Response::Invited { number, secret },
        None => Response::Refused { message: format!("{MAX_OPEN} invitations are open already") },
    }
}

fn invitation(core: &mut Core, now: Instant, number: u64) -> Response {
    match core.invitation(now, number) {
        InvitationState::Open => Response::Open,
        InvitationState::Joined { peer, data } => {
            Response::Joined { hit: peer.0, invitation: String::from_utf8_lossy(&data).into_owned() }
        }
        InvitationState::Ended => Response::Ended,
    }
}

fn refused(error: &dyn std::error::Error) -> Response {
    Response::Refused { message: error.to_string() }
}
