//! Requests to a running agent.

use std::process::ExitCode;

use holdover_agent::control::{self, Client, ClientError, Request, Response, SignalRequest};

use super::{ActionsArgs, SignalArgs, StatusArgs, WRONG, text};
use crate::command_support::{print, print_error, print_json, with_causes};

pub(super) fn signal(args: &SignalArgs) -> ExitCode {
    let request =
        Request::Signal(SignalRequest { event: args.event.0, interface: args.interface.clone(), lead: args.lead });
    match Client::ask(&args.socket.socket, &request).and_then(Client::answer) {
        Ok(Response::Signalled { links }) => print(&format!("reported to {}\n", links.join(", "))),
        Ok(_) => unexpected(),
        Err(error) => failed(&error),
    }
}

pub(super) fn status(args: &StatusArgs) -> ExitCode {
    match control::status(&args.socket.socket) {
        Ok(status) if args.json => print_json(&status),
        Ok(status) => print(&text::status(&status)),
        Err(error) => failed(&error),
    }
}

pub(super) fn actions(args: &ActionsArgs) -> ExitCode {
    let mut client = match Client::ask(&args.socket.socket, &Request::Actions { follow: args.follow }) {
        Ok(client) => client,
        Err(error) => return failed(&error),
    };
    loop {
        match client.follow() {
            Ok(None) => return ExitCode::SUCCESS,
            Ok(Some(Response::Action(action))) => {
                let line =
                    if args.json { serde_json::to_string(&action).unwrap_or_default() } else { text::action(&action) };
                if print(&(line + "\n")) != ExitCode::SUCCESS {
                    return ExitCode::FAILURE;
                }
            }
            Ok(Some(_)) => return unexpected(),
            Err(error) => return failed(&error),
        }
    }
}

/// The exit status distinguishes a wrong request from a missing agent.
fn failed(error: &ClientError) -> ExitCode {
    print_error(&with_causes(error));
    match error {
        ClientError::Refused(_) => ExitCode::from(WRONG),
        _ => ExitCode::FAILURE,
    }
}

fn unexpected() -> ExitCode {
    failed(&ClientError::unexpected::<Response>())
}
