//! Mobile hosts: how they move, how they attach to cells, and what they say to base stations and gateways.

mod config;
pub(crate) mod messages;
mod mobile;
mod track;

pub use config::{
    Attachment, Beacons, CellId, MobileHost, Movement, Path, Prediction, RadioCell, RegisterOn, Registration, Repeat,
    Selection, Stop, Visit, Visits,
};
pub(crate) use mobile::{Foresight, Mobile};
