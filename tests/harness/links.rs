use std::fs;
use std::path::Path;

/// Checks that the relative links of a document, and the sources of its pictures, lead to files.
/// Returns their number.
#[track_caller]
pub(crate) fn follow_links(document: &Path) -> usize {
    let text = fs::read_to_string(document).unwrap();
    let mut seen = 0;
    let starts = ["](", " src=\"", " srcset=\""];
    for link in starts.iter().flat_map(|start| text.split(start).skip(1)) {
        let target = link.split([')', '#', '"']).next().unwrap();
        if target.is_empty() || target.contains("://") {
            continue;
        }
        let path = document.parent().unwrap().join(target);
        assert!(path.exists(), "{}: {target}", document.display());
        seen += 1;
    }
    seen
}
