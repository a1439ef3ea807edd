"""A comparison of controllers: ranking and claims (`ranking`), figure and table (`build`)."""
