//! Which files the compiler sees.

use std::path::Path;

use crate::sources;

/// The compiler does not look at a file that no `mod` names, and its tests never run.
#[test]
fn each_file_is_compiled() {
    let folders = [
        "core/src",
        "src",
        "tests/integration",
        "tests/campaign",
        "benches",
    ];
    let all: Vec<_> = folders.into_iter().flat_map(sources).collect();
    for (path, _) in &all {
        let (folder, stem) = (path.parent().unwrap(), path.file_stem().unwrap());
        let (folder, name) = match stem.to_str().unwrap() {
            "lib" | "main" => continue,
            "mod" => (folder.parent().unwrap(), folder.file_name().unwrap()),
            _ => (folder, stem),
        };
        let names_it = format!("mod {};", name.to_str().unwrap());
        let roots = ["mod.rs", "lib.rs", "main.rs"].map(|root| folder.join(root));
        let is_parent =
            |other: &Path| *other == folder.with_extension("rs") || roots.contains(&other.into());
        let mut parents = all.iter().filter(|(other, _)| is_parent(other));
        assert!(
            parents.any(|(_, text)| text.contains(&names_it)),
            "no module names {}",
            path.display()
        );
    }
}
