//! Several gateways agree in etcd which of them owns a mobile host ([`ownership`]).

mod ownership;
mod store;

pub(crate) use ownership::Admission;

#[cfg(test)]
mod tests;
