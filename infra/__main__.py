"""The Pulumi program: reads the stack's configuration and builds what it declares."""

import sys
from pathlib import Path

import pulumi
from pulumi.runtime import get_config_env, get_config_secret_keys_env

from infra import config
from infra.errors import ConfigError
from infra.local.stack import LocalStack

ALREADY_TOLD = 32
"""Exit code by which Pulumi's language hosts know that the user has been told."""


def main() -> None:
    try:
        declared = config.load(
            get_config_env(), stack=pulumi.get_stack(), secret_keys=get_config_secret_keys_env()
        )
    except ConfigError as error:
        pulumi.log.error(str(error))
        sys.exit(ALREADY_TOLD)  # a RunError would add "an unhandled error occurred"
    for remark in declared.remarks:
        pulumi.log.warn(str(remark))
    stack = LocalStack("local", declared, Path(pulumi.get_root_directory()))
    pulumi.export("dashboard_url", stack.dashboard_url)
    pulumi.export("urls", stack.urls)
    pulumi.export("results", stack.results)


main()
