//! The native half of the Python module `holdover`: everything here is a thin shell around the library crates. Documentation for
//! users is in the Python half.

mod attended;
mod captures;
mod congestion;
mod errors;
mod mechanism;
mod packet;
mod papers;
mod run;
mod scenario;
mod sweep;
mod table;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _holdover(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<scenario::PyScenario>()?;
    module.add_class::<table::PyTable>()?;
    module.add_class::<packet::PyPacket>()?;
    module.add_class::<congestion::PySendState>()?;
    module.add_class::<sweep::PyDriver>()?;
    module.add_class::<sweep::SweepFiles>()?;
    module.add_class::<sweep::PyWorker>()?;
    module.add_function(wrap_pyfunction!(scenario::builtin_scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::schema, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(table::read_flows, module)?)?;
    module.add_function(wrap_pyfunction!(table::read_samples, module)?)?;
    module.add_function(wrap_pyfunction!(table::read_events, module)?)?;
    module.add_function(wrap_pyfunction!(table::read_actions, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::open_sweep, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(papers::papers, module)?)?;
    module.add_function(wrap_pyfunction!(papers::paper_scenario, module)?)?;
    module.add_function(wrap_pyfunction!(papers::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(papers::fit, module)?)?;
    module.add_function(wrap_pyfunction!(captures::explain, module)?)?;
    module.add_function(wrap_pyfunction!(captures::link_trace, module)?)?;
    Ok(())
}
