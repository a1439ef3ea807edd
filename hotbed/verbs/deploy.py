"""`hotbed deploy`: bring the spec's store to a testbed, or remove it."""

from __future__ import annotations

from hotbed import completion
from hotbed.alone import alone
from hotbed.exit_codes import resumable
from hotbed.options import argument, named, option
from hotbed.output import JsonFlag, Output
from hotbed.progress import progress
from hotbed.site_options import YesWipeOption
from schemas.errors import UserError


def verb(
    testbed: str | None = argument(
        "Optional if there is only one.", None, autocompletion=completion.testbeds
    ),
    remove: bool = named("--remove", "Remove the store and its data.", False),
    packages: bool = named("--packages", "With --remove: remove the packages as well.", False),
    wipe: bool = named(
        "--wipe",
        "Wipe devices that have been used otherwise. Devices of your own "
        "machines need consent, or --yes-wipe with their names.",
        False,
    ),
    yes_wipe: YesWipeOption = None,
    deployer: str | None = option("own, ceph-ansible or cephadm; by default the spec's.", None),
    dry_run: bool = named("--dry-run", "Only print the steps.", False),
    no_snapshot: bool = named(
        "--no-snapshot", "Do not take a snapshot of the deployed state.", False
    ),
    as_json: JsonFlag = False,
) -> Output:
    """Deploy the store by Ansible; repeat it to resume. Ends with a snapshot `deployed`."""
    from hotbed.site_options import wipe_leftovers
    from testbed.choose import choose_ready
    from testbed.deploy import deployers, deployment

    if remove:
        _refuse_with_removal(
            deployer,
            dry_run=dry_run,
            wipe=wipe,
            yes_wipe=yes_wipe is not None,
            no_snapshot=no_snapshot,
        )
    elif packages:
        raise UserError("--packages belongs to a removal", do="add --remove, or leave it out")
    site, found = choose_ready(testbed, "hotbed deploy {}")
    if dry_run:
        spec = deployment.asked(site, found, deployer)
        plan = deployers.choose(spec).plan(spec)
        return Output(plan, plan.sentences)
    with alone(found), resumable():
        if not remove:
            wipe = wipe_leftovers(site, found.name, wipe=wipe, devices=yes_wipe, ask=not as_json)
        with progress(f"{'remove from' if remove else 'deploy'} {found.name}") as report:
            if remove:
                result = deployment.take_away(site, found, report, packages=packages)
            else:
                result = deployment.bring(
                    site, found, report, wipe=wipe, snapshot=not no_snapshot, deployer=deployer
                )
    return Output(result, result.sentence)


def _refuse_with_removal(deployer: str | None, **given: bool) -> None:
    """Raise if options are given that mean nothing with --remove."""
    if deployer is not None:
        raise UserError(
            "--remove uses the deployer that brought the store", do="leave --deployer out"
        )
    for given_name in (name.replace("_", "-") for name, there in given.items() if there):
        raise UserError(
            f"--{given_name} belongs to a deployment", do=f"leave --remove or --{given_name} out"
        )
