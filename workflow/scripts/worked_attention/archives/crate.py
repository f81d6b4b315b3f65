"""What an archive is, for machines: RO-Crate metadata of a workflow run (profile Workflow Run Crate 0.5, on RO-Crate 1.1)."""

from collections.abc import Iterable
from importlib.metadata import version

from rocrate.model import ContextEntity
from rocrate.rocrate import ROCrate

METADATA = "ro-crate-metadata.json"
WORKFLOW = "source/Snakefile"
PROFILES = {  # what the crate as a whole conforms to
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
VERSIONS = {url: url.rsplit("/", 1)[1] for url in PROFILES}
KINDS = {
    "md": "text/markdown",
    "json": "application/json",
    "csv": "text/csv",
    "html": "text/html",
    "txt": "text/plain",
    "yaml": "text/yaml",
}


def metadata(manifest: dict, citation: dict, files: Iterable[str], published: str) -> dict:
    """The content of ro-crate-metadata.json.

    manifest: that of the archive. citation: what CITATION.cff says of the workflow. files: names of the archive's files. published: the
    date of the commit.
    """
    crate, place = ROCrate(version="1.1"), manifest["place"]
    licence = _named(crate, f"https://spdx.org/licenses/{citation['license']}", "CreativeWork", citation["license"])
    authors = [_named(crate, f"#{author['name']}", "Organization", author["name"]) for author in citation["authors"]]
    authors = authors[0] if len(authors) == 1 else authors
    root = crate.root_dataset
    crate.name, crate.license, crate.datePublished = manifest["title"], licence, published
    crate.description = f"{citation['title']}. Suites: {', '.join(manifest['suites'])}. The license is that of the workflow in source/."
    root["author"] = authors
    root["conformsTo"] = [_named(crate, url, "CreativeWork", name, version=VERSIONS[url]) for url, name in PROFILES.items()]
    workflow = crate.add_workflow(
        dest_path=WORKFLOW, main=True, lang="snakemake", lang_version=version("snakemake"), properties=_kind(WORKFLOW)
    )
    workflow["name"], workflow["license"], workflow["creator"] = citation["title"], licence, authors
    workflow["version"] = manifest["commit"] or citation["version"]
    workflow["conformsTo"] = _named(
        crate, "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE", "CreativeWork", "ComputationalWorkflow", version="1.0"
    )
    if manifest["repository"]:
        workflow["codeRepository"] = workflow["url"] = manifest["repository"]
    folders = {"config/suites/": "Suites of cases", "source/": "The workflow", "envs/": "Pinned packages"}
    folders |= {f"results/{suite}/": f"Results of the suite {suite}" for suite in manifest["suites"]}
    singles = [name for name in sorted(files) if "/" not in name or name.rsplit("/", 1)[0] == place]
    parts = {name: crate.add_dataset(dest_path=name, properties={"name": said}) for name, said in folders.items()}
    parts |= {name: crate.add_file(dest_path=name, properties={"name": name, **_kind(name)}) for name in singles}
    parts["README.md"]["about"] = root
    given = [_parameter(crate, "suites", "Dataset", parts["config/suites/"]), _parameter(crate, "config", "File", parts["config.json"])]
    made = [_parameter(crate, "summary", "File", parts[f"{place}/summary.json"])]
    made += [_parameter(crate, suite, "Dataset", parts[f"results/{suite}/"]) for suite in manifest["suites"]]
    workflow["input"], workflow["output"] = given, made
    run = crate.add_action(workflow, identifier="#run", object=[p["workExample"] for p in given], result=[p["workExample"] for p in made])
    run["name"] = f"The run that made {manifest['title']}"
    root["mentions"] = run
    run["description"] = f"`snakemake` with the config in config.json; {place}/environment.json has machine, packages and settings"
    return crate.metadata.generate()


def _named(crate: ROCrate, identifier: str, kind: str, name: str, **more: str) -> ContextEntity:
    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, "name": name, **more}))


def _kind(name: str) -> dict[str, str]:
    """The encodingFormat of a file."""
    return {"encodingFormat": KINDS.get(name.rpartition(".")[2], "text/plain")}


def _parameter(crate: ROCrate, name: str, kind: str, example) -> ContextEntity:
    properties = {"@type": "FormalParameter", "name": name, "additionalType": kind, "workExample": {"@id": example.id}}
    properties["conformsTo"] = {"@id": "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"}
    parameter = crate.add(ContextEntity(crate, f"#{name}-parameter", properties=properties))
    example["exampleOfWork"] = parameter
    return parameter
