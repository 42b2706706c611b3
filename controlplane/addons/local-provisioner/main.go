// Command local-provisioner creates PersistentVolumes that are directories of this machine.
//
// Each volume has a directory of its own, named after the volume, which is new and empty, and is
// removed with the volume. All nodes of a local cluster see the same files, so that a volume can
// be used on every node.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

type provisioner struct {
	folder *os.Root
}

// Provision creates the directory. It may exist after an attempt whose volume was not stored.
func (p provisioner) Provision(
	_ context.Context, options controller.ProvisionOptions,
) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	name := options.PVName
	if err := p.folder.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, controller.ProvisioningFinished, err
	}
	// For programs of every user, as volumes without a file system of their own are elsewhere. The
	// folder around it is private.
	if err := p.folder.Chmod(name, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity: v1.ResourceList{
				v1.ResourceStorage: options.PVC.Spec.Resources.Requests[v1.ResourceStorage],
			},
			// Unlike hostPath, local volumes obey fsGroup.
			PersistentVolumeSource: v1.PersistentVolumeSource{
				Local: &v1.LocalVolumeSource{Path: filepath.Join(p.folder.Name(), name)},
			},
			NodeAffinity: everyNode(),
		},
	}
	return volume, controller.ProvisioningFinished, nil
}

// Delete removes the directory with all data.
func (p provisioner) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	return p.folder.RemoveAll(volume.Name)
}

// everyNode is what a local volume has to say about nodes.
func everyNode() *v1.VolumeNodeAffinity {
	linux := v1.NodeSelectorRequirement{
		Key: v1.LabelOSStable, Operator: v1.NodeSelectorOpIn, Values: []string{"linux"},
	}
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{linux}},
	}}}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	folder := flag.String("folder", "", "absolute path of the folder of all volumes")
	name := flag.String("provisioner", "", "name in StorageClasses")
	address := flag.String("metrics-address", "", "IP address on which metrics are served")
	port := flag.Int("metrics-port", 0, "port on which metrics are served")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	client, err := kubernetes.NewForConfig(config)
	exitOn(err)
	root, err := os.OpenRoot(*folder)
	exitOn(err)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	controller.NewProvisionController(
		ctx, client, *name, provisioner{root},
		controller.LeaderElection(false),
		// Directories are made at once; the default waits 15 seconds after an error.
		controller.RateLimiter(workqueue.DefaultTypedControllerRateLimiter[string]()),
		controller.MetricsAddress(*address),
		controller.MetricsPort(int32(*port)),
	).Run(ctx)
}

func exitOn(err error) {
	if err != nil {
		klog.ErrorS(err, "Cannot start")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
