// Command gen writes what k8s.io/kube-scheduler/extender/v1 marshals, as kube-scheduler sends and reads it:
// one file a value, named after the type and the case. See the README one folder up.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extender "k8s.io/kube-scheduler/extender/v1"
)

func pod(name, uid string) *v1.Pod {
	gpu := v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("500m")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "team-a", UID: types.UID(uid), ResourceVersion: "41",
			Labels:      map[string]string{"muster.dev/job": "train", "quote": "a\"b\\c é <&>"},
			Annotations: map[string]string{"muster.dev/roles": "worker=4"},
		},
		Spec: v1.PodSpec{
			SchedulerName: "muster",
			Containers: []v1.Container{{
				Name: "main", Image: "train:1",
				Resources: v1.ResourceRequirements{Requests: gpu, Limits: gpu},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func node(name string) v1.Node {
	return v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": "r1"}},
		Status:     v1.NodeStatus{Allocatable: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
	}
}

func main() {
	names := []string{"node-0", "node-1", "node-2"}
	some := []string{"node-1"}
	none := []string{}
	reason := "muster's plan keeps this pod for another node"
	failed := extender.FailedNodesMap{"node-0": reason, "node-2": reason}
	nodes := &v1.NodeList{Items: []v1.Node{node("node-0"), node("node-1"), node("node-2")}}
	values := map[string]any{
		"args-names":       extender.ExtenderArgs{Pod: pod("train-0", "uid-0"), NodeNames: &names},
		"args-nodes":       extender.ExtenderArgs{Pod: pod("train-0", "uid-0"), Nodes: nodes},
		"args-empty-names": extender.ExtenderArgs{Pod: pod("train-0", "uid-0"), NodeNames: &none},
		"args-nothing":     extender.ExtenderArgs{},
		"filter-names": extender.ExtenderFilterResult{
			NodeNames: &some, FailedAndUnresolvableNodes: failed},
		"filter-nodes": extender.ExtenderFilterResult{
			Nodes:                      &v1.NodeList{Items: []v1.Node{node("node-1")}},
			FailedAndUnresolvableNodes: failed},
		"filter-error": extender.ExtenderFilterResult{Error: "muster has not read the whole cluster yet"},
		"prioritize":   extender.HostPriorityList{{Host: "node-0", Score: 0}, {Host: "node-1", Score: 10}},
		"preempt-args-meta": extender.ExtenderPreemptionArgs{
			Pod: pod("urgent-0", "uid-9"),
			NodeNameToMetaVictims: map[string]*extender.MetaVictims{
				"node-0": {Pods: []*extender.MetaPod{{UID: "uid-0"}}, NumPDBViolations: 1},
				"node-1": {Pods: []*extender.MetaPod{{UID: "uid-7"}, {UID: "uid-8"}}},
				"node-2": {},
			}},
		"preempt-args-full": extender.ExtenderPreemptionArgs{
			Pod: pod("urgent-0", "uid-9"),
			NodeNameToVictims: map[string]*extender.Victims{
				"node-0": {Pods: []*v1.Pod{pod("train-0", "uid-0")}, NumPDBViolations: 1},
				"node-1": {Pods: []*v1.Pod{pod("other-7", "uid-7"), pod("other-8", "uid-8")}},
			}},
		"preempt-result": extender.ExtenderPreemptionResult{
			NodeNameToMetaVictims: map[string]*extender.MetaVictims{
				"node-1": {Pods: []*extender.MetaPod{{UID: "uid-7"}, {UID: "uid-8"}}},
			}},
		"preempt-result-meta": extender.ExtenderPreemptionResult{
			NodeNameToMetaVictims: map[string]*extender.MetaVictims{
				"node-1": {Pods: []*extender.MetaPod{{UID: "uid-7"}, {UID: "uid-8"}}},
				"node-2": {},
			}},
		"preempt-result-none": extender.ExtenderPreemptionResult{
			NodeNameToMetaVictims: map[string]*extender.MetaVictims{}},
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen FOLDER")
		os.Exit(2)
	}
	for name, value := range values {
		data, err := json.Marshal(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name+".json"), append(data, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
	}
}
