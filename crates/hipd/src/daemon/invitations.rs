//! Requests about invitations.

use holdover_base::{Duration, Instant};

use crate::control::{Request, Response};
use crate::core::{Core, InvitationState, MAX_OPEN};
use crate::invitation::Secret;

/// The longest time for which an invitation may be open.
const MAX_VALID_S: u64 = 24 * 3600;

pub(super) fn answer(core: &mut Core, now: Instant, request: &Request) -> Response {
    match *request {
        Request::Invite { valid_s } => {
            let secret = Secret::random();
            let valid = Duration::from_secs(valid_s.clamp(1, MAX_VALID_S));
            match core.invite(now, secret.0, valid) {
                Some(number) => Response::Invited { number, secret },
                None => Response::Refused { message: format!("{MAX_OPEN} invitations are open already") },
            }
        }
        Request::Invitation { number } => match core.invitation(now, number) {
            InvitationState::Open => Response::Open,
            InvitationState::Joined { peer, data } => {
                Response::Joined { hit: peer.0, invitation: String::from_utf8_lossy(&data).into_owned() }
            }
            InvitationState::Ended => Response::Ended,
        },
        Request::Withdraw { number } => {
            core.withdraw(now, number);
            Response::Done
        }
        Request::Status | Request::Reload | Request::Down | Request::Join { .. } => Response::Done,
    }
}
