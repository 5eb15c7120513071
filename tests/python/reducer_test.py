"""The reducer: gradients of ranks that are threads of this process."""
import ctypes
import gc
import unittest
from array import array

import lockstep
from group_test import in_threads
from lockstep import Error, ErrorCode

try:
    import numpy
except ImportError:
    numpy = None


def parameters(rank=0):
    """Without NumPy too: an array of Python's own."""
    return {"weight": array("f", [rank + 1.0] * 6), "bias": array("d", [rank + 5.0] * 2)}


class Steps(unittest.TestCase):
    def test_averages_what_ranks_wrote(self):
        def function(ranks):
            values = parameters(ranks.rank)
            reducer = lockstep.Reducer(ranks, values)
            for step in range(3):
                for name, factor in (("bias", 10), ("weight", 1)):
                    gradient = reducer.gradients[name]
                    gradient[:] = array(gradient.format, [factor * (ranks.rank + step)] * len(gradient))
                    reducer.mark_ready(name)
                reducer.wait()
                self.assertEqual(list(reducer.gradients["weight"]), [step + 1.0] * 6)
                self.assertEqual(list(reducer.gradients["bias"]), [10 * (step + 1.0)] * 2)
            self.assertIn("step 3", reducer.report())
            return [list(v) for v in values.values()]
        self.assertEqual(in_threads(function, 3), [[[1.0] * 6, [5.0] * 2]] * 3)  # rank 0's values

    def test_gradients_of_the_caller_stay_where_they_are(self):
        def function(ranks):
            gradients = parameters(ranks.rank)
            reducer = lockstep.Reducer(ranks, parameters(), gradients, average=False)
            reducer.mark_ready(0)
            reducer.mark_ready(1)
            reducer.wait()
            self.assertIs(reducer.gradients["bias"], gradients["bias"])
            return list(gradients["weight"]) + list(gradients["bias"])
        self.assertEqual(in_threads(function), [[3.0] * 6 + [11.0] * 2] * 2)

    def test_modes(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters(), find_unused=True)
            weight, bias = reducer.gradients.values()
            with reducer.no_sync():
                weight[0] += 2
                reducer.mark_ready("weight")
                reducer.wait()
            self.assertTrue(reducer.begin_step(1))
            weight[0] += 2
            reducer.mark_ready("weight")
            if ranks.rank == 0:
                reducer.mark_unused("bias")
            else:
                bias[1] = 6
                reducer.mark_ready("bias")
            reducer.wait()
            self.assertEqual((weight[0], bias[1]), (4, 3))
            self.assertEqual(reducer.clip(2.5), 5)
            self.assertEqual((weight[0], bias[1]), (2, 1.5))
            self.assertFalse(reducer.begin_step(0))
        self.assertEqual(in_threads(function), [None, None])

    def test_gradients_that_travel_smaller(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, {"weight": array("f", [0.0])}, hook="bf16")
            reducer.gradients["weight"][0] = 1 + 2.0**-12  # which bf16 has not
            reducer.mark_ready("weight")
            reducer.wait()
            return reducer.gradients["weight"][0]
        self.assertEqual(in_threads(function), [1, 1])

    def test_a_forward_that_does_not_wait(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters(), overlap_forward=True)
            for name, gradient in reducer.gradients.items():
                gradient[0] = ranks.rank
                reducer.mark_ready(name)
            reducer.wait()
            reducer.wait_gradients("weight")
            reducer.wait_gradients()
            return [gradient[0] for gradient in reducer.gradients.values()]
        self.assertEqual(in_threads(function), [[0.5, 0.5]] * 2)

    def test_gradients_outlive_the_reducer(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters())
            gradient = reducer.gradients["bias"]
            reducer.close()
            self.assertRaisesRegex(ValueError, "closed", reducer.wait)
            gc.collect()
            gradient[1] = 7
            return gradient[1]
        self.assertEqual(in_threads(function), [7, 7])

    def test_gradients_have_the_form_of_their_parameters(self):
        def function(ranks):
            block = memoryview(array("f", [1.0] * 6)).cast("B").cast("f", (2, 3))
            reducer = lockstep.Reducer(ranks, {"of C": (ctypes.c_float * 6)(), "block": block, "nothing": array("f")})
            return [g.shape for g in reducer.gradients.values()]
        self.assertEqual(in_threads(function), [[(6,), (2, 3), (0,)]] * 2)

    def test_a_gradient_cannot_be_replaced(self):
        ranks, = lockstep.Communicator.local_group(1)
        reducer = lockstep.Reducer(ranks, parameters())
        with self.assertRaises(TypeError):
            reducer.gradients["bias"] = array("d", [1.0] * 2)

    def test_gradients_of_the_caller_in_another_order(self):
        def function(ranks):
            gradients = dict(reversed(parameters(ranks.rank).items()))
            reducer = lockstep.Reducer(ranks, parameters(), gradients)
            for name in gradients:
                reducer.mark_ready(name)
            reducer.wait()
            return gradients["weight"][0], gradients["bias"][0]
        self.assertEqual(in_threads(function), [(1.5, 5.5)] * 2)

    def test_accumulation_within_accumulation(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, {"bias": array("d", [0.0])})
            with reducer.no_sync():
                with reducer.no_sync():
                    pass
                reducer.gradients["bias"][0] = ranks.rank
                reducer.mark_ready("bias")
                reducer.wait()
                alone = reducer.gradients["bias"][0]
            reducer.mark_ready("bias")
            reducer.wait()
            return alone, reducer.gradients["bias"][0]
        self.assertEqual(in_threads(function), [(0, 0.5), (1, 0.5)])

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_all_gradients_at_once_waits_for_all(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters(), overlap_forward=True)
            for step in range(3):
                averages = reducer.average({"weight": [step] * 6, "bias": [ranks.rank + step] * 2})
            return averages["weight"][0], averages["bias"][0]
        self.assertEqual(in_threads(function), [(2, 2.5)] * 2)

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_gradients_that_do_not_fit_begin_no_step(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters())
            for bias, kind in ([1.0], ValueError), ([1j, 1j], TypeError):
                with self.assertRaisesRegex(kind, "the gradient of 'bias'"):
                    reducer.average({"weight": [1.0] * 6, "bias": bias})
            return reducer.average({"weight": [1.0] * 6, "bias": [2.0] * 2})["bias"][0]
        self.assertEqual(in_threads(function), [2, 2])

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_all_gradients_at_once(self):
        def function(ranks):
            values = {"w": numpy.zeros((2, 3), "float32"), "scale": numpy.zeros((), "float64")}
            reducer = lockstep.Reducer(ranks, values, find_unused=True)
            averages = reducer.average({"w": numpy.full((2, 3), ranks.rank), "scale": 3.0})
            self.assertEqual((averages["w"].shape, averages["w"][1, 2], averages["scale"][()]), ((2, 3), 0.5, 3))
            with self.assertRaisesRegex(ValueError, r"\(3,\) and the parameter \(2, 3\)"):
                reducer.average({"w": numpy.zeros(3)})
            averages = reducer.average({"w": numpy.full((2, 3), 4.0)} if ranks.rank else {})
            return averages["w"][0, 0]
        self.assertEqual(in_threads(function), [2, 2])


class Failures(unittest.TestCase):
    def test_what_one_rank_gives_wrongly_all_are_told(self):
        for wrong, reason in (([1.0], "must be a dict"), ({"weight": "text"}, "parameter 'weight': .* no array and has no buffer"),
                              ({"weight": b"1234"}, "parameter 'weight': .* read only")):
            def function(ranks, wrong=wrong):
                lockstep.Reducer(ranks, wrong if ranks.rank == 0 else parameters())
            first, second = in_threads(function)
            self.assertIsInstance(first, (TypeError, ValueError))
            self.assertEqual((second.code, second.culprit), (ErrorCode.REFUSED, 0), second)
            for error in first, second:
                self.assertRegex(str(error), reason)

    def test_gradients_that_do_not_fit_their_parameters(self):
        ranks, = lockstep.Communicator.local_group(1)
        values = parameters()
        with self.assertRaisesRegex(ValueError, "must be those of weight, bias"):
            lockstep.Reducer(ranks, values, {"weight": values["weight"]})
        ranks, = lockstep.Communicator.local_group(1)
        with self.assertRaisesRegex(TypeError, "gradients are list, and must be a dict"):
            lockstep.Reducer(ranks, values, list(values.values()))
        ranks, = lockstep.Communicator.local_group(1)
        with self.assertRaisesRegex(ValueError, "the gradient of 'bias': float is no array"):
            lockstep.Reducer(ranks, values, {"weight": values["weight"], "bias": 1.0})
        ranks, = lockstep.Communicator.local_group(1)
        with self.assertRaisesRegex(ValueError, "'bias' differs"):
            lockstep.Reducer(ranks, values, {"weight": values["weight"], "bias": array("d", [0.0])})

    def test_models_that_differ(self):
        def function(ranks):
            values = parameters()
            if ranks.rank == 1:
                values["bias"] = array("d", [0] * 3)
            lockstep.Reducer(ranks, values)
        for error in in_threads(function):
            self.assertEqual(error.code, ErrorCode.MISMATCH)
            self.assertRegex(str(error), "bias")

    def test_a_gradient_that_is_forgotten_or_marked_twice(self):
        def function(ranks):
            reducer = lockstep.Reducer(ranks, parameters())
            reducer.mark_ready("weight")
            with self.assertRaisesRegex(Error, "already marked") as twice:
                reducer.mark_ready("weight")
            self.assertRaisesRegex(ValueError, "no parameter is called 'height'", reducer.mark_ready, "height")
            self.assertEqual(twice.exception.code, ErrorCode.INVALID_ARGUMENT)
            reducer.wait()
        for error in in_threads(function):
            self.assertRegex(str(error), "bias|weight")


if __name__ == "__main__":
    unittest.main()
