"""The devices of a node: each worker has one, and no one has two while another has none."""

import pytest

from cluster.node.devices import DeviceShare


def test_each_worker_gets_the_device_that_the_fewest_have() -> None:
    share = DeviceShare("CUDA_VISIBLE_DEVICES=2,5")
    with share.one() as first, share.one() as second:
        assert (first, second) == ((("CUDA_VISIBLE_DEVICES", "2"),), (("CUDA_VISIBLE_DEVICES", "5"),))
        with share.one() as third:
            assert third == first
    with pytest.raises(OSError, match="its start failed"), share.one():
        raise OSError("its start failed")
    with share.one() as again:
        assert again == first


@pytest.mark.parametrize("text", ["", "CUDA_VISIBLE_DEVICES="])
def test_where_there_are_none_a_worker_gets_none(text: str) -> None:
    with DeviceShare(text).one() as given:
        assert given == ()
