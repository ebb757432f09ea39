//! What the run was to do, on disk beside the journals, for whoever survives the coordinator.

use std::{fs, io};

use wire::manifest::{FILE_NAME, Manifest, ManifestTest, VERSION};

use super::RunPlan;

/// Writes the manifest of a run.
pub(super) fn write(plan: &RunPlan) -> io::Result<()> {
    let test = |selected: &super::SelectedTest| ManifestTest {
        uid: selected.uid.clone(),
        display_name: selected.listed.display.as_ref().unwrap_or(&selected.listed.name).clone(),
        suite: plan.programs[selected.program].suite.clone(),
        group: selected.group,
        foreign: selected.foreign.as_deref().map(str::to_owned),
    };
    let manifest = Manifest {
        version: VERSION,
        run: plan.run.clone(),
        tests: plan.tests.iter().map(test).collect(),
        groups: plan.groups.clone(),
    };
    host::fail::at("run.manifest")?;
    let bytes = serde_json::to_vec(&manifest)?;
    fs::write(plan.run_dir.join(FILE_NAME), bytes)
}
